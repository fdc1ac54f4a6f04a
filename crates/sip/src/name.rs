//! The names of header fields that a proxy uses; others pass unread.

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident $full:literal $($compact:literal)?,)*) => {
        /// The name of a header field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name {
            $($(#[$doc])* $name,)*
            /// Any other name; the field passes unchanged.
            Other,
        }

        impl Name {
            /// Parses a name in any case, or its compact form.
            pub fn parse(bytes: &[u8]) -> Name {
                $(if bytes.eq_ignore_ascii_case($full.as_bytes())
                    $(|| bytes.eq_ignore_ascii_case($compact.as_bytes()))? {
                    return Name::$name;
                })*
                Name::Other
            }

            /// The name as written in a new line; empty for [`Name::Other`].
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
    /// Call-ID, which identifies a call (RFC 3261, 20.8).
    CallId "Call-ID" "i",
    /// Contact, a URI for direct requests (RFC 3261, 20.10).
    Contact "Contact" "m",
    /// Content-Encoding, the compression of the body (RFC 3261, 20.12).
    ContentEncoding "Content-Encoding" "e",
    /// Content-Length, the size of the body in bytes (RFC 3261, 20.14).
    ContentLength "Content-Length" "l",
    /// Content-Type, the media type of the body (RFC 3261, 20.15).
    ContentType "Content-Type" "c",
    /// CSeq, the number and method of a request (RFC 3261, 20.16).
    CSeq "CSeq",
    /// X-Trunkline-Ended, by which one gateway tells another why it ends a call.
    Ended "X-Trunkline-Ended",
    /// Expires, the lifetime of a registration, or of another message's content (RFC 3261, 20.19).
    Expires "Expires",
    /// From, the originator of a request (RFC 3261, 20.20).
    From "From" "f",
    /// Max-Forwards, the remaining number of hops (RFC 3261, 20.22).
    MaxForwards "Max-Forwards",
    /// Path, the proxies towards a registered phone (RFC 3327).
    Path "Path",
    /// Proxy-Require, extensions that proxies must support (RFC 3261, 20.29).
    ProxyRequire "Proxy-Require",
    /// Record-Route, proxies that stay in the path of a call (RFC 3261, 20.30).
    RecordRoute "Record-Route",
    /// Require, extensions that the recipient must support (RFC 3261, 20.32).
    Require "Require",
    /// Route, the proxies that a request must pass (RFC 3261, 20.34).
    Route "Route",
    /// Session-Expires, the time within which a call is refreshed (RFC 4028, 4).
    SessionExpires "Session-Expires" "x",
    /// Supported, the extensions that the sender supports (RFC 3261, 20.37).
    Supported "Supported" "k",
    /// To, the recipient of a request (RFC 3261, 20.39).
    To "To" "t",
    /// Unsupported, extensions that the recipient doesn't support (RFC 3261, 20.40).
    Unsupported "Unsupported",
    /// Via, the hops that a request has passed (RFC 3261, 20.42).
    Via "Via" "v",
    /// Warning, further information about a response (RFC 3261, 20.43).
    Warning "Warning",
}
