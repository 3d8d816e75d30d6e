//! The program on input that it cannot use: a clear word, a status, no server touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GOOD: &str = r#"{"aggregate_type":"order","aggregate_id":"0191f3a0-0000-7000-8000-000000000001","event_type":"order.placed","payload":{}}"#;

fn run(args: &[&Path], dsn: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outbox_demo"));
    command.args(args).env_remove("OUTBOX_DSN");
    if let Some(dsn) = dsn {
        command.env("OUTBOX_DSN", dsn);
    }
    command.output().expect("the program starts")
}

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("a file of the test's own");
    path
}

fn complaint(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn a_bad_line_is_named() {
    let path = file("bad_line.jsonl", format!("{GOOD}\n\n{{\"aggregate_type\": 1\n").as_bytes());
    let text = complaint(&run(&[&path], None), 2);
    assert!(text.contains("bad_line.jsonl:3: not valid JSON"), "{text}");
}

#[test]
fn a_missing_and_an_empty_file_are_named() {
    let text = complaint(&run(&[Path::new("nowhere.jsonl")], None), 2);
    assert!(text.contains("nowhere.jsonl: cannot open the events file"), "{text}");
    let text = complaint(&run(&[&file("empty.jsonl", b"")], None), 2);
    assert!(text.contains("empty.jsonl: there is no event in this file"), "{text}");
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let path = file("control.jsonl", b"{\"\\u001b[31m\": 1}\n");
    let text = complaint(&run(&[&path], None), 2);
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn the_server_must_be_named_and_reachable() {
    let path = file("good.jsonl", GOOD.as_bytes());
    let text = complaint(&run(&[&path], None), 2);
    assert!(text.contains("OUTBOX_DSN is not set"), "{text}");
    let text = complaint(&run(&[&path], Some("port=many")), 2);
    assert!(text.contains("OUTBOX_DSN is no connection string"), "{text}");
    let text = complaint(&run(&[&path], Some("host=/nowhere user=postgres")), 1);
    assert!(text.contains("the server: "), "{text}");
}

#[cfg(unix)]
#[test]
fn a_name_that_is_no_utf8_is_taken() {
    use std::os::unix::ffi::OsStrExt;
    let name = Path::new(std::ffi::OsStr::from_bytes(b"\xff.jsonl"));
    let text = complaint(&run(&[name], None), 2);
    assert!(text.contains("cannot open the events file"), "{text}");
}
