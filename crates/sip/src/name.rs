//! The names of header fields that a proxy works with; others pass it unread.

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident $full:literal $($compact:literal)?,)*) => {
        /// A header field's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name {
            $($(#[$doc])* $name,)*
            /// Any other: it passes as it is.
            Other,
        }

        impl Name {
            /// Reads a name of any case, or its compact form.
            pub fn parse(bytes: &[u8]) -> Name {
                $(if bytes.eq_ignore_ascii_case($full.as_bytes())
                    $(|| bytes.eq_ignore_ascii_case($compact.as_bytes()))? {
                    return Name::$name;
                })*
                Name::Other
            }

            /// As it is written in a new line; of [`Name::Other`] nothing.
            pub fn text(self) -> &'static str {
                match self {
                    $(Name::$name => $full,)*
                    Name::Other => "",
                }
            }
        }
    };
}

names! {
    /// RFC 3261, 20.8.
    CallId "Call-ID" "i",
    /// RFC 3261, 20.10.
    Contact "Contact" "m",
    /// RFC 3261, 20.12.
    ContentEncoding "Content-Encoding" "e",
    /// RFC 3261, 20.14.
    ContentLength "Content-Length" "l",
    /// RFC 3261, 20.15.
    ContentType "Content-Type" "c",
    /// RFC 3261, 20.16.
    CSeq "CSeq",
    /// RFC 3261, 20.20.
    From "From" "f",
    /// RFC 3261, 20.22.
    MaxForwards "Max-Forwards",
    /// RFC 3327.
    Path "Path",
    /// RFC 3261, 20.29.
    ProxyRequire "Proxy-Require",
    /// RFC 3261, 20.30.
    RecordRoute "Record-Route",
    /// RFC 3261, 20.32.
    Require "Require",
    /// RFC 3261, 20.34.
    Route "Route",
    /// RFC 3261, 20.37.
    Supported "Supported" "k",
    /// RFC 3261, 20.39.
    To "To" "t",
    /// RFC 3261, 20.40.
    Unsupported "Unsupported",
    /// RFC 3261, 20.42.
    Via "Via" "v",
    /// RFC 3261, 20.43.
    Warning "Warning",
}
