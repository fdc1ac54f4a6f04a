//! Lexical elements of header field values (RFC 3261, 25.1): white space that may fold lines,
//! quoted strings, and lists separated by commas and semicolons. All results are slices of the
//! message's bytes.

/// Whether a byte is a space, a tab, or the end of a folded line.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether `bytes` are a token, such as a method or a parameter name.
pub fn is_token(bytes: &[u8]) -> bool {
    let one = |b: &u8| b.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(b);
    !bytes.is_empty() && bytes.iter().all(one)
}

/// Removes white space from both ends.
pub fn trim(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&b| !is_space(b)).map_or(0, |last| last + 1);
    let start = bytes.iter().position(|&b| !is_space(b)).unwrap_or(end);
    &bytes[start..end]
}

/// Parses a decimal number of only digits; `None` also if it is too large for `u64`.
pub fn number(bytes: &[u8]) -> Option<u64> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let digit = |sum: Option<u64>, b: &u8| sum?.checked_mul(10)?.checked_add(u64::from(b - b'0'));
    digits.then(|| bytes.iter().fold(Some(0), digit)).flatten()
}

/// The position of the first of `ends` that is neither in a quoted string nor between angle
/// brackets; the length of `bytes` if there is none. `None` if a string or a bracket is
/// unterminated.
pub fn find(bytes: &[u8], ends: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped, mut bracket) = (false, false, false);
    for (i, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if !bracket => quoted = !quoted,
            _ if quoted => {}
            _ if !bracket && ends.contains(&byte) => return Some(i),
            b'<' => bracket = true,
            b'>' => bracket = false,
            _ => {}
        }
    }
    (!quoted && !bracket).then_some(bytes.len())
}

/// The parts of `bytes` between `separator`s, without surrounding white space. Everything after an
/// unterminated string or bracket is one part.
pub fn split(bytes: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let end = find(bytes, &[separator]).unwrap_or(bytes.len());
        let (part, after) = bytes.split_at(end);
        rest = after.get(1..);
        Some(trim(part))
    })
}

/// The parameters after a value: `bytes` start after it, and are empty or start with a semicolon.
/// Each has a name and an optional value.
pub fn params(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    // There is nothing before the first semicolon.
    split(bytes, b';').skip(1).map(|param| {
        let at = find(param, b"=").filter(|&at| at < param.len());
        match at {
            Some(at) => (trim(&param[..at]), Some(trim(&param[at + 1..]))),
            None => (param, None),
        }
    })
}

/// Whether the text after a value consists only of parameters with valid names.
pub fn are_params(bytes: &[u8]) -> bool {
    let bytes = trim(bytes);
    let begins = bytes.is_empty() || bytes[0] == b';';
    begins && find(bytes, b"").is_some() && params(bytes).all(|(name, _)| is_token(name))
}

/// The value of the named parameter, ignoring case; `Some(None)` if it has no value.
pub fn param<'a>(bytes: &'a [u8], name: &str) -> Option<Option<&'a [u8]>> {
    params(bytes).find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}

/// Parses a host (a name, an IPv4 address, or an IPv6 address in brackets) and an optional port.
pub fn host_port(bytes: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let end = match bytes {
        [b'[', ..] => bytes.iter().position(|&b| b == b']')? + 1,
        _ => bytes.iter().position(|&b| b == b':' || is_space(b)).unwrap_or(bytes.len()),
    };
    let (host, rest) = bytes.split_at(end);
    let one = |b: &u8| b.is_ascii_alphanumeric() || b"-._".contains(b);
    let good = match host {
        [b'[', inner @ .., b']'] => core::str::from_utf8(inner)
            .is_ok_and(|text| text.parse::<core::net::Ipv6Addr>().is_ok()),
        _ => !host.is_empty() && host.iter().all(one),
    };
    let port = match trim(rest) {
        [] => None,
        [b':', port @ ..] => Some(u16::try_from(number(trim(port))?).ok().filter(|&p| p > 0)?),
        _ => return None,
    };
    good.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_where_nothing_is_quoted() {
        let list = br#""a,b\",c" <sip:x,y@h> ; p , sip:z,"#;
        let parts: Vec<_> = split(list, b',').collect();
        assert_eq!(parts, [&br#""a,b\",c" <sip:x,y@h> ; p"#[..], b"sip:z", b""]);
        let open: Vec<_> = split(b"a, \"b, c", b',').collect();
        assert_eq!(open, [&b"a"[..], b"\"b, c"]);
    }

    #[test]
    fn parameters_may_have_space_around_them_and_no_value() {
        let all: Vec<_> = params(b"  ; A\r\n  = 1 ; b;c=\"x;y\"").collect();
        assert_eq!(
            all,
            [(&b"A"[..], Some(&b"1"[..])), (b"b", None), (b"c", Some(&b"\"x;y\""[..]))]
        );
        assert_eq!(param(b";a=1;B", "b"), Some(None));
        assert_eq!(param(b";a=1", "b"), None);
        assert!(are_params(b"") && are_params(b" ; a") && are_params(b";a=\"\""));
        assert!(!are_params(b";;") && !are_params(b"x;a") && !are_params(b";a=\""));
    }

    #[test]
    fn hosts_and_ports() {
        assert_eq!(host_port(b"h.example"), Some((&b"h.example"[..], None)));
        assert_eq!(host_port(b"10.0.0.1 : 5060"), Some((&b"10.0.0.1"[..], Some(5_060))));
        assert_eq!(host_port(b"[2001:db8::1]:7"), Some((&b"[2001:db8::1]"[..], Some(7))));
        for bad in [&b""[..], b":5", b"h:", b"h:0", b"h:65536", b"h x", b"[::1", b"[g]", b"a,b"] {
            assert_eq!(host_port(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn numbers_are_digits_that_fit() {
        assert_eq!(number(b"0068"), Some(68));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"-1", b"+1", b"1 ", b"18446744073709551616"] {
            assert_eq!(number(bad), None);
        }
    }
}
