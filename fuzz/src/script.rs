//! Scripts: bytes that encode the steps of a test. Every byte string is a script, and every list of
//! steps can be encoded as one, so that seeds are written as steps and the fuzzer mutates their
//! bytes.

use trunkline_base::wire::Reader;

/// A parameter of a step.
pub(crate) trait Field: Sized {
    fn read(r: &mut Reader<'_>) -> Option<Self>;
    fn write(&self, out: &mut Vec<u8>);
}

impl Field for u8 {
    fn read(r: &mut Reader<'_>) -> Option<u8> {
        r.u8().ok()
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
}

impl Field for u16 {
    fn read(r: &mut Reader<'_>) -> Option<u16> {
        r.u16().ok()
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_be_bytes());
    }
}

/// A length and that many bytes, or as many as the script has left.
impl Field for Vec<u8> {
    fn read(r: &mut Reader<'_>) -> Option<Vec<u8>> {
        let len = usize::from(r.u16().ok()?);
        Some(r.bytes(len.min(r.rest().len())).ok()?.to_vec())
    }
    fn write(&self, out: &mut Vec<u8>) {
        u16::try_from(self.len()).expect("a seed's bytes are few").write(out);
        out.extend(self);
    }
}

/// Declares an enum of steps and its encoding: a number (modulo the number of steps, so that every
/// byte is valid), then the fields.
macro_rules! steps {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$step_doc:meta])* $tag:literal $step:ident { $($field:ident: $ty:ty),* })*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "a step's comment names its fields")]
        pub enum $name { $($(#[$step_doc])* $step { $($field: $ty),* }),* }

        impl $name {
            /// Reads the next step of a script; `None` at its end.
            pub fn read(r: &mut trunkline_base::wire::Reader<'_>) -> Option<Self> {
                use $crate::script::Field;
                const COUNT: u8 = [$($tag),*].len() as u8;
                match u8::read(r)? % COUNT {
                    $($tag => Some($name::$step { $($field: Field::read(r)?),* }),)*
                    _ => None,
                }
            }

            /// Appends the step to a script.
            pub fn write(&self, out: &mut Vec<u8>) {
                use $crate::script::Field;
                match self {
                    $($name::$step { $($field),* } => {
                        out.push($tag);
                        $($field.write(out);)*
                    })*
                }
            }
        }
    };
}
pub(crate) use steps;

/// Duration of `n` times `unit`, in microseconds. A unit is between 50 µs and 1 s, so that one byte
/// reaches pacing, deadlines, hellos and the death of a link.
pub(crate) fn micros(unit: u8, n: u8) -> u64 {
    [50, 1_000, 20_000, 1_000_000][usize::from(unit % 4)] * u64::from(n)
}
