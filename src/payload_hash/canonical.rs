//! Writes a stored jsonb as canonical JSON text, whatever its depth, without recursion.

use super::number;
use super::stored::{Children, Container, Damaged, Value};
use std::borrow::Cow;

/// Where the text goes, a piece at a time: a digest, or a buffer in tests.
pub trait Sink {
    fn put(&mut self, text: &[u8]);
}

/// Why a payload has no canonical text.
#[derive(Debug, PartialEq, Eq)]
pub enum Unwritable {
    Damaged,
    OutOfMemory,
}

impl From<Damaged> for Unwritable {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

/// Turns a string of the database's encoding into UTF-8.
pub type ToUtf8 = fn(&[u8]) -> Cow<'_, [u8]>;

/// Writes the canonical text of the payload whose container starts at `stored`.
pub fn write(stored: &[u8], to_utf8: ToUtf8, sink: &mut impl Sink) -> Result<(), Unwritable> {
    let mut writer = Writer { to_utf8, sink, open: Vec::new(), number: Vec::new(), digits: Vec::new() };
    writer.value(Container::new(stored)?.root()?)?;
    while let Some(container) = writer.open.last_mut() {
        match container.next(writer.sink) {
            Some(Next::Element(value)) => writer.value(value?)?,
            Some(Next::Member(key, value)) => writer.member(&key, value)?,
            None => {
                writer.open.pop();
            }
        }
    }
    Ok(())
}

/// A container that has been begun and not ended.
struct Open<'a> {
    rest: Rest<'a>,
    first: bool,
}

enum Rest<'a> {
    Elements(Children<'a>),
    /// Keys in UTF-8, in ascending byte order.
    Members(std::vec::IntoIter<(Cow<'a, [u8]>, Value<'a>)>),
}

enum Next<'a> {
    Element(Result<Value<'a>, Damaged>),
    Member(Cow<'a, [u8]>, Value<'a>),
}

impl<'a> Open<'a> {
    /// Takes the next child and writes the comma before it, or the bracket that ends the container.
    fn next(&mut self, sink: &mut impl Sink) -> Option<Next<'a>> {
        let (next, end) = match &mut self.rest {
            Rest::Elements(rest) => (rest.next().map(Next::Element), b"]"),
            Rest::Members(rest) => (rest.next().map(|(key, value)| Next::Member(key, value)), b"}"),
        };
        match next {
            None => sink.put(end),
            Some(_) if !self.first => sink.put(b","),
            Some(_) => self.first = false,
        }
        next
    }
}

struct Writer<'a, 's, S> {
    to_utf8: ToUtf8,
    sink: &'s mut S,
    open: Vec<Open<'a>>,
    /// Kept from number to number, so that a number does not cost an allocation.
    number: Vec<u8>,
    digits: Vec<u8>,
}

impl<'a, S: Sink> Writer<'a, '_, S> {
    fn value(&mut self, value: Value<'a>) -> Result<(), Unwritable> {
        match value {
            Value::Null => self.sink.put(b"null"),
            Value::Bool(true) => self.sink.put(b"true"),
            Value::Bool(false) => self.sink.put(b"false"),
            Value::String(text) => string(&(self.to_utf8)(text), self.sink),
            Value::Number(stored) => {
                self.number.clear();
                number::write(stored, &mut self.digits, &mut self.number)?;
                self.sink.put(&self.number);
            }
            Value::Container(container) => self.begin(container)?,
        }
        Ok(())
    }

    fn member(&mut self, key: &[u8], value: Value<'a>) -> Result<(), Unwritable> {
        string(key, self.sink);
        self.sink.put(b":");
        self.value(value)
    }

    fn begin(&mut self, container: Container<'a>) -> Result<(), Unwritable> {
        let rest = if container.is_object() {
            self.sink.put(b"{");
            let stored = container.members()?;
            let mut members = Vec::new();
            // Millions of members are more than the server may have room for, and a failed allocation would
            // abort it.
            members.try_reserve_exact(container.len()).map_err(|_| Unwritable::OutOfMemory)?;
            for member in stored {
                let (key, value) = member?;
                members.push(((self.to_utf8)(key), value));
            }
            members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            Rest::Members(members.into_iter())
        } else {
            self.sink.put(b"[");
            Rest::Elements(container.elements()?)
        };
        self.open.push(Open { rest, first: true });
        Ok(())
    }
}

/// Writes a JSON string, escaped as serde_json escapes: only what JSON demands, hex digits in lower case.
fn string(text: &[u8], sink: &mut impl Sink) {
    sink.put(b"\"");
    let mut plain = 0;
    // Most have nothing to escape; without a way out of the loop this is a few instructions for many bytes.
    let special = text.iter().fold(false, |special, &byte| special | is_special(byte));
    for (at, &byte) in text.iter().enumerate().filter(|_| special) {
        if !is_special(byte) {
            continue;
        }
        sink.put(&text[plain..at]);
        plain = at + 1;
        escape(byte, sink);
    }
    sink.put(&text[plain..]);
    sink.put(b"\"");
}

fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn escape(byte: u8, sink: &mut impl Sink) {
    match byte {
        b'"' => sink.put(b"\\\""),
        b'\\' => sink.put(b"\\\\"),
        0x08 => sink.put(b"\\b"),
        b'\t' => sink.put(b"\\t"),
        b'\n' => sink.put(b"\\n"),
        0x0C => sink.put(b"\\f"),
        b'\r' => sink.put(b"\\r"),
        _ => sink.put(format!("\\u{byte:04x}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sink for Vec<u8> {
        fn put(&mut self, text: &[u8]) {
            self.extend_from_slice(text);
        }
    }

    #[test]
    fn strings_are_escaped_as_serde_json_escapes_them() {
        let every_ascii: String = (0..=0x7F_u8).map(char::from).collect();
        for text in ["", "plain", "\\x41", "é 漢字 🙂 \u{80} \u{2028} \u{feff}", "\"\\\"", &every_ascii]
        {
            let mut written = Vec::new();
            string(text.as_bytes(), &mut written);
            assert_eq!(written, serde_json::to_vec(text).unwrap());
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let scalar_without_child = 0x5000_0001_u32.to_ne_bytes();
        let endless_object = 0x2FFF_FFFF_u32.to_ne_bytes();
        for stored in [&[][..], &[0, 0], &scalar_without_child, &endless_object] {
            assert_eq!(write(stored, |text| Cow::Borrowed(text), &mut Vec::new()), Err(Unwritable::Damaged));
        }
    }
}
