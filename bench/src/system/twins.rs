//! A twin must have the very table that it is compared with, also after that has changed.

use postgres::Client;

use crate::failure::{Doing, Failure, Outcome};

const COLUMNS: &str = "
    SELECT format('column %s %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN ' NOT NULL' END)
    FROM pg_attribute a
    WHERE a.attrelid = 'outbox_event'::regclass AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum";

const INDEXES: &str = "
    SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'outbox_event'::regclass ORDER BY 1";

const STORAGE: &str = "
    SELECT unnest(reloptions) FROM pg_class WHERE oid = 'outbox_event'::regclass ORDER BY 1";

/// An error that says how the tables of two systems differ, if they do.
pub fn compare(twin: &mut Client, model: &mut Client) -> Outcome<()> {
    let (twin, model) = (definition(twin)?, definition(model)?);
    let only = |these: &[String], others: &[String]| {
        these.iter().filter(|line| !others.contains(line)).cloned().collect::<Vec<_>>().join("; ")
    };
    let (extra, lacking) = (only(&twin, &model), only(&model, &twin));
    if extra.is_empty() && lacking.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the twin's table has to follow the extension's: it lacks [{lacking}] and has [{extra}]"
    )))
}

fn definition(client: &mut Client) -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    for query in [COLUMNS, INDEXES, STORAGE] {
        for row in client.query(query, &[]).doing(|| "reading a table's definition".into())? {
            lines.push(row.try_get(0)?);
        }
    }
    Ok(lines)
}
