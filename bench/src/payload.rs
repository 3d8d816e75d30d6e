//! Payloads: JSON of an order, as long as is asked for, the same in every run.

use std::fmt::Write;

/// JSON text of about `bytes` bytes; `seed` tells one from another.
pub fn json(bytes: usize, seed: u64) -> String {
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    let mut text = format!(
        r#"{{"order": "{:016x}", "customer": {{"id": {}, "name": "Zoë Müller"}}, "total": "{}.{:02}", "lines": ["#,
        random.next(),
        random.next() % 1_000_000,
        random.next() % 10_000,
        random.next() % 100
    );
    let mut separator = "";
    while text.len() < bytes.saturating_sub(40) {
        text.push_str(separator);
        line(&mut text, &mut random);
        separator = ", ";
    }
    text.push_str("]}");
    text
}

/// One line of the order. Half of it says the same in each line, as in real data: compression has something
/// to do, but not too much.
fn line(text: &mut String, random: &mut Random) {
    let (sku, quantity, price) = (random.next(), random.next() % 9 + 1, random.next() % 100_000);
    // Writing to a String cannot fail.
    let _ = write!(text, r#"{{"sku": "{sku:016x}", "quantity": {quantity}, "price": {price}}}"#);
}

/// JSON text of about `bytes` bytes that does not compress, so that it takes its full size in TOAST.
pub fn noise(bytes: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    let mut random = Random(1);
    let text: String =
        (0..bytes).map(|_| char::from(ALPHABET[(random.next() >> 40) as usize % 64])).collect();
    format!(r#"{{"noise": "{text}"}}"#)
}

/// How a size is called in tables.
pub fn label(bytes: usize) -> String {
    match bytes {
        0..100 => format!("{bytes} B"),
        100..1000 => format!("{:.1} kB", bytes as f64 / 1000.0),
        _ => format!("{} kB", bytes / 1000),
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_json_of_the_size() {
        for bytes in [300, 2_000, 20_000] {
            let text = json(bytes, 7);
            assert!(text.len().abs_diff(bytes) < 60, "{} for {bytes}", text.len());
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
            assert_eq!(text, json(bytes, 7));
            assert_ne!(text, json(bytes, 8));
        }
        assert!(serde_json::from_str::<serde_json::Value>(&noise(1000)).is_ok());
    }

    #[test]
    fn sizes_have_names() {
        assert_eq!(label(20), "20 B");
        assert_eq!(label(300), "0.3 kB");
        assert_eq!(label(20_000), "20 kB");
    }
}
