//! Conversion of bytes and numbers to and from the JSON of test vectors.

use serde_json::{Value, json};
use trunkline_base::wire::{Short, Writer};

/// Hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// The bytes of field `key`.
pub fn bytes(object: &Value, key: &str) -> Vec<u8> {
    let digits = text(object, key);
    assert!(digits.len().is_multiple_of(2) && digits.is_ascii(), "{key}: {digits}");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>();
    bytes.unwrap_or_else(|_| panic!("{key} is not hexadecimal: {digits}"))
}

/// The `N` bytes of field `key`.
pub fn array<const N: usize>(object: &Value, key: &str) -> [u8; N] {
    bytes(object, key).try_into().unwrap_or_else(|_| panic!("{key} doesn't have {N} bytes"))
}

/// The text of field `key`.
pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("{key} is no string in {object}"))
}

/// The number in field `key`.
pub fn number<T: TryFrom<u64>>(object: &Value, key: &str) -> T {
    let number = object[key].as_u64().and_then(|number| T::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{key} is out of range in {object}"))
}

/// The number in field `key`, unless it is null.
pub fn optional<T: TryFrom<u64>>(object: &Value, key: &str) -> Option<T> {
    (!object[key].is_null()).then(|| number(object, key))
}

/// Whether field `key` is true.
pub fn flag(object: &Value, key: &str) -> bool {
    object[key].as_bool().unwrap_or_else(|| panic!("{key} is no boolean in {object}"))
}

/// The members of field `key`.
pub fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().unwrap_or_else(|| panic!("{key} is no array in {object}"))
}

/// The bytes that `emit` writes.
pub fn written(emit: impl FnOnce(&mut Writer<'_>) -> Result<(), Short>) -> Vec<u8> {
    let mut out = [0; 2_048];
    let mut w = Writer::new(&mut out);
    emit(&mut w).expect("room for it");
    w.written().to_vec()
}

/// The outputs of a vector that is one message.
pub fn message(bytes: &[u8]) -> Value {
    json!({ "bytes": hex(bytes) })
}

/// The only message in the outputs.
pub fn message_of(outputs: &Value) -> Vec<u8> {
    bytes(outputs, "bytes")
}
