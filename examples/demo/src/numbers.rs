//! Finds the number that would suffer most in a program that computes in f64.

/// f64 keeps 17 significant digits at best.
const SAFE_DIGITS: usize = 17;

/// The plain number (no exponent) with the most digits in a JSON text, when it
/// has more than an f64 can carry.
pub fn longest_number(json: &str) -> Option<&str> {
    numbers(json)
        .filter(|n| !n.contains(['e', 'E']) && significant_digits(n) > SAFE_DIGITS)
        .max_by_key(|n| significant_digits(n))
}

fn significant_digits(number: &str) -> usize {
    number.chars().filter(char::is_ascii_digit).skip_while(|d| *d == '0').count()
}

/// The numbers of a valid JSON text, in order; what looks like one inside a string is none.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])?;
            let found = rest.get(start..)?;
            if let Some(inside) = found.strip_prefix('"') {
                rest = after_string(inside);
                continue;
            }
            let end = found
                .find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E'))
                .unwrap_or(found.len());
            let (number, after) = found.split_at(end);
            rest = after;
            return Some(number);
        }
    })
}

/// What follows a string's closing quote.
fn after_string(inside: &str) -> &str {
    let mut escaped = false;
    for (place, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return inside.get(place + 1..).unwrap_or_default(),
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_number_is_found() {
        let json = r#"{"a":1,"rate":12.3456789012345678901234567890,"b":[123456789012345678]}"#;
        assert_eq!(longest_number(json), Some("12.3456789012345678901234567890"));
    }

    #[test]
    fn digits_in_strings_and_numbers_that_fit_do_not_count() {
        let json = r#"{"no":"123456789012345678901","q":"\"99999999999999999999","x":[1e2,0.00000000000000000001,-3]}"#;
        assert_eq!(longest_number(json), None);
        assert_eq!(longest_number("true"), None);
        assert_eq!(longest_number("-123456789012345678"), Some("-123456789012345678"));
    }

    #[test]
    fn every_number_is_seen_once() {
        let json = r#"[1,-2.5e+3,{"k 7":"\\","v":40}]"#;
        assert_eq!(numbers(json).collect::<Vec<_>>(), ["1", "-2.5e+3", "40"]);
    }
}
