//! JSON values, the many ways to write each, and neighbours that differ from it in one place only.

use crate::choice::Choice;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// `digits` times ten to the power of `exponent`.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    pub negative: bool,
    pub digits: String,
    pub exponent: i32,
}

/// Two texts of one value, or of two that are nearly equal.
pub fn pair() -> impl Strategy<Value = (String, String)> {
    (value(), any::<u64>(), any::<bool>()).prop_map(|(value, seed, varied)| {
        let mut choice = Choice(seed);
        let mut other = value.clone();
        if varied {
            vary(&mut other, &mut choice);
        }
        (written(&value, &mut choice), written(&other, &mut choice))
    })
}

fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        1 => Just(Json::Null),
        1 => any::<bool>().prop_map(Json::Bool),
        4 => number().prop_map(Json::Number),
        4 => text().prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::Array),
            btree_map(text(), inner, 0..4).prop_map(Json::Object),
        ]
    })
}

fn number() -> impl Strategy<Value = Number> {
    let exponent = prop_oneof![6 => -3..3_i32, 3 => -30..30_i32, 1 => -400..400_i32];
    (any::<bool>(), "[0-9]{1,4}|[0-9]{1,30}|0|1|10", exponent)
        .prop_map(|(negative, digits, exponent)| Number { negative, digits, exponent })
}

/// Few of them, so that keys of one object meet, and each with something to it.
fn text() -> impl Strategy<Value = String> {
    let one = prop::sample::select(vec![
        "", "a", "b", "aa", "Z", " ", "é", "e\u{301}", "\"", "\\", "/", "\n", "\u{1}", "\u{7f}", "ß", "中",
        "\u{ffff}", "😀", "null", "1", "\\x61",
    ]);
    vec(one, 0..3).prop_map(|parts| parts.concat())
}

fn size(value: &Json) -> usize {
    1 + match value {
        Json::Array(elements) => elements.iter().map(size).sum(),
        Json::Object(members) => members.values().map(size).sum(),
        _ => 0,
    }
}

/// Changes one place of a value, any of them.
fn vary(value: &mut Json, choice: &mut Choice) {
    let target = choice.below(size(value));
    vary_at(value, &mut (target as isize), choice);
}

fn vary_at(value: &mut Json, left: &mut isize, choice: &mut Choice) {
    if *left == 0 {
        *value = neighbour(value.clone(), choice);
    }
    *left -= 1;
    if *left < 0 {
        return;
    }
    match value {
        Json::Array(elements) => elements.iter_mut().for_each(|element| vary_at(element, left, choice)),
        Json::Object(members) => members.values_mut().for_each(|member| vary_at(member, left, choice)),
        _ => {}
    }
}

fn neighbour(value: Json, choice: &mut Choice) -> Json {
    if choice.one_in(8) {
        return Json::Array(vec![value]);
    }
    match value {
        Json::Null => Json::Text("null".into()),
        Json::Bool(value) => Json::Bool(!value),
        Json::Number(number) => neighbour_of_number(number, choice),
        Json::Text(text) => Json::Text(neighbour_of_text(text, choice)),
        Json::Array(elements) => neighbour_of_array(elements, choice),
        Json::Object(members) => neighbour_of_object(members, choice),
    }
}

fn neighbour_of_number(mut number: Number, choice: &mut Choice) -> Json {
    match choice.below(4) {
        0 => number.negative = !number.negative,
        1 => number.exponent += 1,
        2 => {
            let last = number.digits.pop().unwrap_or('0');
            number.digits.push(if last == '7' { '8' } else { '7' });
        }
        _ => return Json::Text(number.digits),
    }
    Json::Number(number)
}

fn neighbour_of_text(text: String, choice: &mut Choice) -> String {
    match choice.below(4) {
        0 => text.replace('é', "e\u{301}") + "a",
        1 => text.replace("e\u{301}", "é"),
        2 => text.to_uppercase(),
        _ => text.chars().rev().collect(),
    }
}

fn neighbour_of_array(mut elements: Vec<Json>, choice: &mut Choice) -> Json {
    match choice.below(3) {
        0 => elements.push(Json::Null),
        1 => elements.reverse(),
        _ => {
            elements.pop();
        }
    }
    Json::Array(elements)
}

fn neighbour_of_object(mut members: BTreeMap<String, Json>, choice: &mut Choice) -> Json {
    match (choice.below(3), members.pop_first()) {
        (0, _) | (_, None) => {
            members.insert("aa".into(), Json::Null);
        }
        (1, Some((key, member))) => {
            members.insert(key + "a", member);
        }
        _ => {}
    }
    Json::Object(members)
}

/// One of the many texts of a value.
fn written(value: &Json, choice: &mut Choice) -> String {
    let mut text = String::new();
    write(value, choice, &mut text);
    text
}

fn write(value: &Json, choice: &mut Choice, out: &mut String) {
    space(choice, out);
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => write_number(number, choice, out),
        Json::Text(text) => write_text(text, choice, out),
        Json::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write(element, choice, out);
            }
            out.push(']');
        }
        Json::Object(members) => write_object(members, choice, out),
    }
    space(choice, out);
}

fn space(choice: &mut Choice, out: &mut String) {
    out.push_str(choice.of(&["", "", "", "", " ", "\n\t"]));
}

/// In any order, and some keys twice: the last one counts.
fn write_object(members: &BTreeMap<String, Json>, choice: &mut Choice, out: &mut String) {
    let mut order: Vec<_> = members.iter().collect();
    for at in (1..order.len()).rev() {
        order.swap(at, choice.below(at + 1));
    }
    let mut written = Vec::new();
    for (key, member) in order {
        if choice.one_in(6) {
            written.push((key, &Json::Null));
        }
        written.push((key, member));
    }
    out.push('{');
    for (at, (key, member)) in written.into_iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        write_text(key, choice, out);
        out.push(':');
        write(member, choice, out);
    }
    out.push('}');
}

fn write_number(number: &Number, choice: &mut Choice, out: &mut String) {
    let more = choice.below(3);
    let digits = format!("{}{}", number.digits, "0".repeat(more));
    let behind = choice.below(digits.len());
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    let whole = whole.trim_start_matches('0');
    let exponent = number.exponent - more as i32 + behind as i32;
    out.push_str(if number.negative { "-" } else { "" });
    out.push_str(if whole.is_empty() { "0" } else { whole });
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    if exponent != 0 || choice.one_in(4) {
        out.push_str(choice.of(&["e", "E"]));
        out.push_str(if exponent >= 0 { choice.of(&["", "+"]) } else { "" });
        out.push_str(&exponent.to_string());
    }
}

fn write_text(text: &str, choice: &mut Choice, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        if character < ' ' || matches!(character, '"' | '\\') || choice.one_in(5) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}
