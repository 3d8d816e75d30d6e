//! The one table: a line for each comparison, a column for each payload size, the target beside it.

use std::fmt::Write;

use super::{Section, figure};
use crate::payload;
use crate::workload::Line;

/// The sizes that most comparisons are made with; another one is named in its cell.
const SIZES: [usize; 3] = [300, 2_000, 20_000];

/// The table in Markdown, its columns aligned so that it can be read on a terminal too.
pub fn lines(sections: &[Section]) -> String {
    let mut rows = vec![header()];
    for section in sections {
        rows.extend(section.workload.lines.iter().map(|line| row(section, line)));
    }
    align(&rows)
}

/// The rows that miss their target, each with the reason that its workload gives, as a list in Markdown.
pub fn missed(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        for line in &section.workload.lines {
            let verdict = row(section, line).pop().unwrap_or_default();
            if verdict.starts_with("**missed**") {
                let reason = line.reason.as_deref().unwrap_or("The reason is not known.").trim();
                let at = verdict.trim_start_matches("**missed**");
                // Writing to a String cannot fail.
                let _ = writeln!(text, "- **{}**{at}: {reason}", line.name);
            }
        }
    }
    text
}

fn header() -> Vec<String> {
    let sizes = SIZES.iter().map(|&size| payload::label(size));
    let mut header = vec!["row".to_owned(), "work".to_owned()];
    header.extend(sizes);
    header.extend(["target".to_owned(), String::new()]);
    header
}

fn row(section: &Section, line: &Line) -> Vec<String> {
    let mut figures: Vec<_> = SIZES.iter().map(|&size| Cell::new(section, line, size)).collect();
    let other = section.findings.payloads().into_iter().find(|size| !SIZES.contains(size));
    if let Some(other) = other.and_then(|size| Cell::new(section, line, size)) {
        figures[0] = Some(Cell { text: format!("{} ({})", other.text, payload::label(other.size)), ..other });
    }
    let mut cells = vec![line.name.clone(), line.work.clone()];
    cells.extend(
        figures.iter().map(|cell| cell.as_ref().map_or_else(|| "–".into(), |cell| cell.text.clone())),
    );
    cells.push(target(line));
    cells.push(verdict(section, line, &figures.into_iter().flatten().collect::<Vec<_>>()));
    cells
}

struct Cell {
    size: usize,
    text: String,
    met: bool,
}

impl Cell {
    fn new(section: &Section, line: &Line, size: usize) -> Option<Self> {
        let summary = line.value(&section.findings, size)?;
        let met = line.met(summary.median);
        let figure = match line.unit() {
            "" => figure::ratio(summary.median),
            unit => format!("{} {unit}", figure::amount(summary.median)),
        };
        Some(Self { size, text: if met { figure } else { format!("**{figure}**") }, met })
    }
}

fn target(line: &Line) -> String {
    match (line.at_most, line.at_least) {
        (Some(most), _) => format!("≤ {}", short(most)),
        (None, Some(least)) => format!("≥ {}", short(least)),
        (None, None) => "–".into(),
    }
}

fn short(target: f64) -> String {
    if target.fract() == 0.0 { format!("{target:.1}") } else { format!("{target}") }
}

fn verdict(section: &Section, line: &Line, cells: &[Cell]) -> String {
    let missed: Vec<_> = cells.iter().filter(|cell| !cell.met).collect();
    match (cells.is_empty(), missed.as_slice()) {
        (true, _) if section.failure.is_some() => "failed".into(),
        (true, _) => "not measured".into(),
        _ if !line.has_target() => String::new(),
        (_, []) => "met".into(),
        (_, missed) if missed.len() == cells.len() => "**missed**".into(),
        (_, missed) => {
            let sizes: Vec<_> = missed.iter().map(|cell| payload::label(cell.size)).collect();
            format!("**missed** at {}", sizes.join(", "))
        }
    }
}

fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(text, "| {cell}{} ", " ".repeat(width - cell.chars().count()));
        }
        text.push_str("|\n");
        if index == 0 {
            widths.iter().for_each(|width| text.push_str(&format!("|{}", "-".repeat(width + 2))));
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "≤ 1".to_owned()], vec!["long".to_owned(), "x".to_owned()]];
        assert_eq!(align(&rows), "| a    | ≤ 1 |\n|------|-----|\n| long | x   |\n");
    }
}
