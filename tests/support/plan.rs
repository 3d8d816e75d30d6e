//! The plans that the statements inside the functions were executed with, as auto_explain reports them.

use crate::database::Database;
use crate::sql::Sql;
use postgres::Client;
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// A session whose executed plans are recorded.
pub struct Recorder {
    pub session: Client,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    pub fn start(database: &Database) -> Self {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        let mut session = database.session_with_notices(move |notice| {
            kept.lock().expect("no panic").push(notice.message().to_owned())
        });
        session.run(
            "LOAD 'auto_explain';
             SET auto_explain.log_min_duration = 0;
             SET auto_explain.log_nested_statements = on;
             SET auto_explain.log_analyze = on;
             SET auto_explain.log_timing = off;
             SET auto_explain.log_format = json;
             SET client_min_messages = log",
        );
        Self { session, messages }
    }

    /// The plans, of statements that read or write outbox_event, of what is done in the session.
    pub fn plans<T>(&mut self, work: impl FnOnce(&mut Client) -> T) -> (T, Vec<Plan>) {
        self.messages.lock().expect("no panic").clear();
        let answer = work(&mut self.session);
        let messages = self.messages.lock().expect("no panic");
        let plans = messages.iter().filter_map(|message| Plan::read(message)).filter(Plan::is_of_events);
        (answer, plans.collect())
    }
}

/// An executed plan.
#[derive(Debug)]
pub struct Plan {
    pub query: String,
    pub nodes: Vec<Node>,
}

/// A node of a plan; a child comes after its parent.
#[derive(Debug)]
pub struct Node {
    pub kind: String,
    /// The index that it goes through, and what the statement calls the table.
    pub index: Option<String>,
    pub alias: Option<String>,
    relation: Option<String>,
}

impl Plan {
    fn read(message: &str) -> Option<Self> {
        let json = &message[message.find('{').filter(|_| message.starts_with("duration: "))?..];
        let report: Value = serde_json::from_str(json).expect("auto_explain writes JSON");
        let mut nodes = Vec::new();
        collect(&report["Plan"], &mut nodes);
        Some(Self { query: report["Query Text"].as_str()?.to_owned(), nodes })
    }

    fn is_of_events(&self) -> bool {
        self.nodes.iter().any(Node::is_of_events)
    }

    /// The kinds of its nodes, from the top.
    pub fn kinds(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.kind.as_str()).collect()
    }

    /// Whether it reads outbox_event through its indexes, or at positions that are known, and sorts nothing.
    pub fn seeks(&self) -> bool {
        self.nodes.iter().all(|node| {
            let reads_all = node.is_of_events()
                && !matches!(
                    node.kind.as_str(),
                    "Index Scan" | "Index Only Scan" | "Tid Scan" | "ModifyTable"
                );
            !reads_all && !node.kind.contains("Sort")
        })
    }
}

impl Node {
    fn is_of_events(&self) -> bool {
        self.relation.as_deref() == Some("outbox_event")
    }
}

fn collect(node: &Value, nodes: &mut Vec<Node>) {
    let text = |field: &str| node[field].as_str().map(str::to_owned);
    nodes.push(Node {
        kind: text("Node Type").unwrap_or_default(),
        index: text("Index Name"),
        alias: text("Alias"),
        relation: text("Relation Name"),
    });
    for child in node["Plans"].as_array().into_iter().flatten() {
        collect(child, nodes);
    }
}

/// The shared buffers that a query touches, with all that runs inside it, and the rows that it returns.
pub fn buffers(session: &mut Client, sql: &str) -> (i64, i64) {
    let explained: Value =
        session.value(&format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}"), &[]);
    let top = &explained[0]["Plan"];
    let number = |field: &str| top[field].as_i64().unwrap_or_else(|| panic!("{field} is in {explained}"));
    (number("Shared Hit Blocks") + number("Shared Read Blocks"), number("Actual Rows"))
}
