//! Writes a stored `numeric` as canonical JSON text: the shape of ECMAScript's `Number::toString`
//! (ECMA-262, 6.1.6.1.20), but with every digit that PostgreSQL keeps.
//!
//! The stored form is that of `src/backend/utils/adt/numeric.c`: base-10,000 digits behind a short or a
//! long header, unchanged on disk since PostgreSQL 9.1.

use super::stored::Damaged;

const SHORT: u16 = 0x8000;
const SPECIAL: u16 = 0xC000;

/// The decimal exponents (of the first digit) between which a number is written plainly.
const PLAIN: std::ops::RangeInclusive<i32> = -6..=20;

/// Appends the canonical text of the `numeric` whose varlena is `stored`. What `digits` holds does not matter: it
/// is room to work in.
pub fn write(stored: &[u8], digits: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), Damaged> {
    let numeric = Numeric::read(body(stored)?)?;
    digits.clear();
    let Some(exponent) = numeric.significant(digits)? else {
        out.push(b'0'); // also for -0, which numeric does not tell from 0
        return Ok(());
    };
    if numeric.negative {
        out.push(b'-');
    }
    if PLAIN.contains(&exponent) {
        plain(digits, exponent, out);
    } else {
        scientific(digits, exponent, out);
    }
    Ok(())
}

/// The varlena without its header, which is one byte when its lowest bit says so and four otherwise.
fn body(stored: &[u8]) -> Result<&[u8], Damaged> {
    let first = *stored.first().ok_or(Damaged)?;
    let short = if cfg!(target_endian = "little") { first & 1 == 1 } else { first & 0x80 != 0 };
    stored.get(if short { 1 } else { 4 }..).ok_or(Damaged)
}

struct Numeric<'a> {
    negative: bool,
    /// The exponent of the first base-10,000 digit.
    weight: i32,
    /// Pairs of bytes, each a digit from 0 to 9,999.
    digits: &'a [u8],
}

impl<'a> Numeric<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Damaged> {
        let header = half(body, 0)?;
        match header & SPECIAL {
            SPECIAL => Err(Damaged), // NaN and the infinities are no JSON
            SHORT => {
                // Seven bits of two's complement: the sign bit is 0x40.
                let low = i32::from(header & 0x3F);
                let weight = if header & 0x40 != 0 { low - 0x40 } else { low };
                Ok(Self { negative: header & 0x2000 != 0, weight, digits: &body[2..] })
            }
            sign => {
                let weight = i32::from(half(body, 2)? as i16);
                Ok(Self { negative: sign == 0x4000, weight, digits: &body[4..] })
            }
        }
    }

    /// Fills `text` with the decimal digits, without zeros at either end, and returns the decimal
    /// exponent of the first; none for zero.
    fn significant(&self, text: &mut Vec<u8>) -> Result<Option<i32>, Damaged> {
        for pair in self.digits.chunks(2) {
            let digit = half(pair, 0)?;
            if digit > 9_999 {
                return Err(Damaged);
            }
            text.extend(
                [digit / 1000, digit / 100 % 10, digit / 10 % 10, digit % 10].map(|d| b'0' + d as u8),
            );
        }
        let Some(leading) = text.iter().position(|&d| d != b'0') else {
            return Ok(None);
        };
        while text.last() == Some(&b'0') {
            text.pop();
        }
        text.drain(..leading);
        Ok(Some(4 * self.weight + 3 - leading as i32))
    }
}

fn half(bytes: &[u8], at: usize) -> Result<u16, Damaged> {
    let half = bytes.get(at..at + 2).ok_or(Damaged)?;
    Ok(u16::from_ne_bytes(half.try_into().map_err(|_| Damaged)?))
}

fn plain(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.extend(std::iter::repeat_n(b'0', whole - digits.len()));
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

fn scientific(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    out.extend_from_slice(format!("e{sign}{}", exponent.unsigned_abs()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short-form numeric: header, weight and digits, behind a four-byte varlena header.
    fn short(negative: bool, weight: i16, digits: &[u16]) -> Vec<u8> {
        let header = SHORT | if negative { 0x2000 } else { 0 } | (weight as u16 & 0x7F);
        let mut stored = (4 * (6 + 2 * digits.len() as u32)).to_ne_bytes().to_vec();
        stored.extend(header.to_ne_bytes());
        stored.extend(digits.iter().flat_map(|d| d.to_ne_bytes()));
        stored
    }

    fn text(stored: &[u8]) -> String {
        let mut out = Vec::new();
        write(stored, &mut Vec::new(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_ecmascript_writes_them() {
        for (stored, expected) in [
            (short(false, 0, &[]), "0"),
            (short(true, 0, &[]), "0"),
            (short(false, 0, &[1]), "1"),
            (short(true, 0, &[100]), "-100"),
            (short(false, 0, &[1, 5000]), "1.5"),
            (short(false, -1, &[1000]), "0.1"),
            (short(false, -2, &[100]), "0.000001"),
            (short(false, -2, &[10]), "1e-7"),
            (short(false, 5, &[1]), "100000000000000000000"),
            (short(false, 5, &[10]), "1e+21"),
            (short(true, 5, &[12, 3400]), "-1.234e+21"),
            (short(false, 1, &[12, 3400]), "123400"),
        ] {
            assert_eq!(text(&stored), expected);
        }
    }

    #[test]
    fn a_long_header_and_a_one_byte_varlena_header_are_read() {
        let mut long = vec![0, 0, 0, 0];
        long.extend(0x4002_u16.to_ne_bytes());
        long.extend(100_i16.to_ne_bytes());
        long.extend(7_u16.to_ne_bytes());
        assert_eq!(text(&long), "-7e+400");

        if cfg!(target_endian = "little") {
            let mut packed = vec![(5 << 1) | 1];
            packed.extend(SHORT.to_ne_bytes());
            packed.extend(42_u16.to_ne_bytes());
            assert_eq!(text(&packed), "42");
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        for stored in [&b""[..], &[0, 0, 0, 0], &[0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0xC0], &[0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(write(stored, &mut Vec::new(), &mut Vec::new()), Err(Damaged));
        }
        assert_eq!(write(&short(false, 0, &[10_000]), &mut Vec::new(), &mut Vec::new()), Err(Damaged));
    }
}
