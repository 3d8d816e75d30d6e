//! Reads jsonb as PostgreSQL stores it (`src/include/utils/jsonb.h`), without PostgreSQL.
//!
//! The stored form is read rather than a parsed tree because it keeps every digit of a number and any
//! depth of nesting, and because nothing has to be built to walk it. The form has been the same since
//! PostgreSQL 9.4 and cannot change under `pg_upgrade`.

const COUNT_MASK: u32 = 0x0FFF_FFFF;
const IS_SCALAR: u32 = 0x1000_0000;
const IS_OBJECT: u32 = 0x2000_0000;
const IS_ARRAY: u32 = 0x4000_0000;

const ENTRY_LENGTH_MASK: u32 = 0x0FFF_FFFF;
const ENTRY_TYPE_MASK: u32 = 0x7000_0000;
const ENTRY_HAS_OFFSET: u32 = 0x8000_0000;

const STRING: u32 = 0x0000_0000;
const NUMBER: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
const NULL: u32 = 0x4000_0000;
const CONTAINER: u32 = 0x5000_0000;

/// The bytes are not a jsonb: the row is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// One value as it is stored; strings and numbers are still the stored bytes.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    String(&'a [u8]),
    Number(&'a [u8]),
    Container(Container<'a>),
}

impl<'a> Value<'a> {
    /// The two parts of a jsonb that holds just this value; a lone scalar is stored as an array of one.
    pub fn alone(self) -> (Vec<u8>, &'a [u8]) {
        let (kind, bytes): (_, &[u8]) = match self {
            Self::Container(container) => return (Vec::new(), container.bytes),
            Self::String(bytes) => (STRING, bytes),
            Self::Number(bytes) => (NUMBER, bytes),
            Self::Bool(false) => (FALSE, &[]),
            Self::Bool(true) => (TRUE, &[]),
            Self::Null => (NULL, &[]),
        };
        let entry = kind | bytes.len() as u32 & ENTRY_LENGTH_MASK;
        ([IS_ARRAY | IS_SCALAR | 1, entry].into_iter().flat_map(u32::to_ne_bytes).collect(), bytes)
    }
}

/// An array or object: a header, one entry for each child, then the children's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    bytes: &'a [u8],
    header: u32,
}

impl<'a> Container<'a> {
    /// `bytes` start at the container's header; a varlena header is not part of them.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Damaged> {
        Ok(Self { bytes, header: word(bytes, 0)? })
    }

    /// The whole payload: a lone scalar is stored as an array of one.
    pub fn root(self) -> Result<Value<'a>, Damaged> {
        if self.header & IS_SCALAR == 0 {
            return Ok(Value::Container(self));
        }
        self.children(1).next().ok_or(Damaged)?
    }

    pub fn is_object(self) -> bool {
        self.header & IS_OBJECT != 0
    }

    /// The elements of an array, in order.
    pub fn elements(self) -> Result<Children<'a>, Damaged> {
        if self.header & IS_ARRAY == 0 {
            return Err(Damaged);
        }
        Ok(self.children(self.len()))
    }

    /// The members of an object, in the order they are stored in: shorter keys first.
    pub fn members(self) -> Result<impl Iterator<Item = Result<(&'a [u8], Value<'a>), Damaged>>, Damaged> {
        let mut keys = self.children(2 * self.len());
        let mut values = keys;
        for _ in 0..self.len() {
            values.next().ok_or(Damaged)??;
        }
        Ok((0..self.len()).map(move |_| match (keys.next(), values.next()) {
            (Some(Ok(Value::String(key))), Some(value)) => Ok((key, value?)),
            _ => Err(Damaged),
        }))
    }

    /// How many elements or members there are; the header of a damaged one may say anything.
    pub fn len(self) -> usize {
        (self.header & COUNT_MASK) as usize
    }

    fn children(self, count: usize) -> Children<'a> {
        Children { container: self, count, index: 0, offset: 0 }
    }
}

/// Walks the children of a container; `offset` runs along, since most entries hold a length only.
#[derive(Debug, Clone, Copy)]
pub struct Children<'a> {
    container: Container<'a>,
    count: usize,
    index: usize,
    offset: usize,
}

impl<'a> Children<'a> {
    fn child(&mut self) -> Result<Value<'a>, Damaged> {
        let bytes = self.container.bytes;
        let entry = word(bytes, 4 + 4 * self.index)?;
        let field = (entry & ENTRY_LENGTH_MASK) as usize;
        let start = self.offset;
        let end = if entry & ENTRY_HAS_OFFSET != 0 { field } else { start + field };
        self.index += 1;
        self.offset = end;

        let base = 4 + 4 * self.count;
        let slice = |from: usize| bytes.get(base + from..base + end).ok_or(Damaged);
        // Numbers and containers are padded to four bytes, counted from the first child's byte.
        let aligned = start.next_multiple_of(4);
        Ok(match entry & ENTRY_TYPE_MASK {
            STRING => Value::String(slice(start)?),
            NUMBER => Value::Number(slice(aligned)?),
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            NULL => Value::Null,
            CONTAINER => Value::Container(Container::new(slice(aligned)?)?),
            _ => return Err(Damaged),
        })
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = Result<Value<'a>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.index < self.count).then(|| self.child())
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> Result<u32, Damaged> {
    let word = bytes.get(at..at + 4).ok_or(Damaged)?;
    Ok(u32::from_ne_bytes(word.try_into().map_err(|_| Damaged)?))
}
