//! Reads the events file: one JSON object per line.
//!
//! The payload and the headers keep their text as it was written: a number that
//! went through f64 would lose digits, and the server reads JSON well enough.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::DemoError;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The events of one file, in the order of its lines; never empty.
#[derive(Debug)]
pub struct EventsFile {
    pub path: PathBuf,
    pub events: Vec<Event>,
}

/// One event, with the parameters of `outbox_enqueue`.
#[derive(Debug, PartialEq)]
pub struct Event {
    pub line: usize,
    pub tenant_id: Option<Uuid>,
    pub aggregate_type: String,
    pub aggregate_id: Uuid,
    pub event_type: String,
    pub deduplication_key: Option<String>,
    pub payload: String,
    pub available_at: Option<String>,
    pub headers: Option<String>,
}

pub fn read_file(path: &Path) -> Result<EventsFile, DemoError> {
    let problem = |problem: String| DemoError::EventsFile { file: path.to_owned(), line: None, problem };
    if path.is_dir() {
        return Err(problem("this is a directory, not a file of events".to_owned()));
    }
    let file = File::open(path).map_err(|e| problem(format!("cannot open the events file: {e}")))?;
    read(BufReader::new(file), path)
}

/// Reads every line; `path` is only named in errors.
fn read(mut input: impl BufRead, path: &Path) -> Result<EventsFile, DemoError> {
    let problem =
        |line: Option<usize>, problem: String| DemoError::EventsFile { file: path.to_owned(), line, problem };
    let mut events = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let length = input
            .read_until(b'\n', &mut bytes)
            .map_err(|e| problem(Some(line), format!("cannot read on: {e}")))?;
        if length == 0 {
            break;
        }
        if let Some(event) = parse_line(&bytes, line).map_err(|e| problem(Some(line), e))? {
            events.push(event);
        }
    }
    if events.is_empty() {
        return Err(problem(None, "there is no event in this file".to_owned()));
    }
    Ok(EventsFile { path: path.to_owned(), events })
}

/// None for a blank line.
fn parse_line(bytes: &[u8], line: usize) -> Result<Option<Event>, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| format!("not valid UTF-8 (byte {} of the line)", e.valid_up_to() + 1))?;
    let text = match line {
        1 => text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text),
        _ => text,
    };
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    if text.is_empty() {
        return Ok(None);
    }
    Fields::parse(text)?.into_event(line).map(Some)
}

/// The keys of a line. Each value is kept as text, so that an error in it can name its key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    tenant_id: Option<&'a RawValue>,
    #[serde(borrow)]
    aggregate_type: &'a RawValue,
    #[serde(borrow)]
    aggregate_id: &'a RawValue,
    #[serde(borrow)]
    event_type: &'a RawValue,
    #[serde(borrow)]
    deduplication_key: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow)]
    available_at: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
}

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let fields: Self = serde_json::from_str(text).map_err(|e| describe(&e))?;
        // serde would take an array of values as well, in the order of the keys.
        if text.starts_with('{') { Ok(fields) } else { Err(NOT_AN_OBJECT.to_owned()) }
    }

    fn into_event(self, line: usize) -> Result<Event, String> {
        Ok(Event {
            line,
            tenant_id: optional("tenant_id", self.tenant_id, uuid)?,
            aggregate_type: text("aggregate_type", self.aggregate_type)?,
            aggregate_id: uuid("aggregate_id", self.aggregate_id)?,
            event_type: text("event_type", self.event_type)?,
            deduplication_key: optional("deduplication_key", self.deduplication_key, text)?,
            payload: self.payload.get().to_owned(),
            available_at: optional("available_at", self.available_at, text)?,
            headers: self.headers.map(|h| h.get().to_owned()),
        })
    }
}

const NOT_AN_OBJECT: &str = "a JSON object is expected on each line";

fn optional<T>(
    key: &str,
    value: Option<&RawValue>,
    read: fn(&str, &RawValue) -> Result<T, String>,
) -> Result<Option<T>, String> {
    value.map(|value| read(key, value)).transpose()
}

fn text(key: &str, value: &RawValue) -> Result<String, String> {
    serde_json::from_str(value.get())
        .map_err(|_| format!("\"{key}\" must be a string, not {}", excerpt(value.get())))
}

fn uuid(key: &str, value: &RawValue) -> Result<Uuid, String> {
    let given = text(key, value)?;
    Uuid::parse_str(&given).map_err(|_| format!("\"{key}\" must be a uuid, not {}", excerpt(value.get())))
}

fn excerpt(json: &str) -> String {
    const LONGEST: usize = 40;
    match json.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", json.get(..end).unwrap_or_default()),
        None => json.to_owned(),
    }
}

/// serde_json's words, with its "line 1" left out: the line is the file's.
fn describe(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let whole = error.to_string();
    let what = whole.strip_suffix(&place).unwrap_or(&whole).replace('`', "\"");
    if error.is_data() && what.starts_with("invalid type") {
        NOT_AN_OBJECT.to_owned()
    } else if error.is_data() {
        format!("{what} (the keys are the parameters of outbox_enqueue)")
    } else {
        format!("not valid JSON: {what}, at column {}", error.column())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0191f3a0-0000-7000-8000-000000000001";

    fn line(payload: &str) -> String {
        format!(
            r#"{{"aggregate_type":"order","aggregate_id":"{ID}","event_type":"order.placed","payload":{payload}}}"#
        )
    }

    fn parsed(input: &[u8]) -> Result<Vec<Event>, String> {
        read(input, Path::new("events.jsonl")).map(|file| file.events).map_err(|e| e.to_string())
    }

    fn refused(input: impl AsRef<[u8]>) -> String {
        parsed(input.as_ref()).expect_err("the file must be refused")
    }

    #[test]
    fn all_keys_are_read_and_most_may_be_left_out_or_null() {
        let full = format!(
            r#"{{"tenant_id":"{ID}","aggregate_type":"a","aggregate_id":"{ID}","event_type":"b","deduplication_key":"k","payload":[1],"available_at":"2030-01-01","headers":{{"h":1}}}}"#
        );
        let nulls = line("1").replace(
            '}',
            r#","tenant_id":null,"deduplication_key":null,"headers":null,"available_at":null}"#,
        );
        let events = parsed(format!("{full}\n{nulls}\n").as_bytes()).expect("two events");
        assert_eq!(events[0].tenant_id, Uuid::parse_str(ID).ok());
        assert_eq!(events[0].deduplication_key.as_deref(), Some("k"));
        assert_eq!(events[0].available_at.as_deref(), Some("2030-01-01"));
        assert_eq!(events[0].headers.as_deref(), Some(r#"{"h":1}"#));
        assert_eq!((events[1].tenant_id, &events[1].headers), (None, &None));
        assert_eq!((&events[1].available_at, &events[1].deduplication_key), (&None, &None));
    }

    #[test]
    fn a_payload_keeps_its_text() {
        for payload in [
            "12345678901234567890.123456789012345678901234567890",
            "1e2",
            "1E400",
            "-0.0",
            "null",
            r#"{"b": 1.0,  "a": "\u00fc"}"#,
        ] {
            assert_eq!(parsed(line(payload).as_bytes()).expect("an event")[0].payload, payload);
        }
    }

    #[test]
    fn a_payload_may_be_nested_deeply() {
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        assert_eq!(parsed(line(&deep).as_bytes()).expect("an event")[0].payload, deep);
    }

    #[test]
    fn blank_lines_carriage_returns_and_a_byte_order_mark_are_accepted() {
        let input = format!("\u{feff}{}\r\n\r\n  \t\n{}", line("1"), line("2"));
        let events = parsed(input.as_bytes()).expect("two events");
        assert_eq!(events.iter().map(|e| e.line).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_line() {
        let error = refused(line("1") + "\nhello\n");
        assert!(error.starts_with("events.jsonl:2: not valid JSON: "), "{error}");
        assert!(!error.contains("line 1"), "{error}");
        let error = refused(line("1") + "}");
        assert!(error.contains(":1: not valid JSON: trailing characters"), "{error}");
        let error = refused(&line("1")[..50]);
        assert!(error.contains(":1: not valid JSON: EOF"), "{error}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let array = format!(r#"[null,"a","{ID}","b",null,1,null,null]"#);
        for other in ["1", "null", "\"text\"", "[]", &array] {
            let error = refused(other);
            assert!(error.starts_with("events.jsonl:1: "), "{error}");
            assert!(
                error.contains("a JSON object is expected") || error.contains("invalid length"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_missing_an_unknown_and_a_repeated_key_are_named() {
        let error = refused(line("1").replace(r#","payload":1"#, ""));
        assert!(error.contains(r#":1: missing field "payload""#), "{error}");
        let error = refused(line(r#"1,"priority":7"#));
        assert!(error.contains(r#":1: unknown field "priority", expected one of "tenant_id""#), "{error}");
        let error = refused(line(r#"1,"payload":2"#));
        assert!(error.contains(r#":1: duplicate field "payload""#), "{error}");
    }

    #[test]
    fn a_value_of_another_type_names_its_key() {
        let error = refused(line("1").replace(&format!("\"{ID}\""), "42"));
        assert_eq!(error, r#"events.jsonl:1: "aggregate_id" must be a string, not 42"#);
        let error = refused(line("1").replace(ID, "4711"));
        assert_eq!(error, r#"events.jsonl:1: "aggregate_id" must be a uuid, not "4711""#);
        let error = refused(line("1").replace("\"order\"", "null"));
        assert_eq!(error, r#"events.jsonl:1: "aggregate_type" must be a string, not null"#);
    }

    #[test]
    fn invalid_utf8_is_refused_with_its_place() {
        let mut input = (line("1") + "\n").into_bytes();
        input.extend_from_slice(b"{\"aggregate_type\":\"\xff\"}\n");
        assert_eq!(refused(input), "events.jsonl:2: not valid UTF-8 (byte 20 of the line)");
    }

    #[test]
    fn a_file_without_events_is_refused() {
        for input in ["", "\n", "\r\n \n", "\u{feff}"] {
            assert_eq!(refused(input), "events.jsonl: there is no event in this file");
        }
    }

    #[test]
    fn a_missing_file_and_a_directory_are_named() {
        let error = read_file(Path::new("no/such/file.jsonl")).expect_err("no file").to_string();
        assert!(error.starts_with("no/such/file.jsonl: cannot open the events file: "), "{error}");
        let error = read_file(Path::new(".")).expect_err("a directory").to_string();
        assert_eq!(error, ".: this is a directory, not a file of events");
    }

    #[test]
    fn the_events_that_come_with_the_project_are_good() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../events.jsonl");
        let events = read_file(&file).expect("the project's events").events;
        assert!(events.len() >= 200, "{}", events.len());
        assert!(
            events.iter().any(|e| crate::numbers::longest_number(&e.payload).is_some_and(|n| n.len() > 30))
        );
    }
}
