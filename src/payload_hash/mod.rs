//! The payload hash: SHA-256 over the payload's canonical JSON text, equal exactly when PostgreSQL says
//! that two payloads are equal. The text is specified in docs/payload-hash.md and never changes.

mod canonical;
mod number;
pub mod stored;

use crate::datum::Payload;
use crate::encoding;
use crate::error::{ErrorReport, OutboxError};
use crate::settings;
use canonical::{Sink, Unwritable};
use pgrx::prelude::*;
use sha2::{Digest, Sha256};

/// The hash of a payload: 64 lower-case hexadecimal digits.
///
/// # Errors
/// `22004` for NULL, `22021` for a string that is no text in the database's encoding, `53200` for more
/// members than there is memory for, `XX001` for a stored value that is damaged.
#[pg_extern(immutable, parallel_safe)]
fn outbox_payload_hash(payload: Option<Payload<'_>>) -> Result<String, ErrorReport> {
    let payload = payload.ok_or(OutboxError::MissingArgument { parameter: "payload" })?;
    Ok(digest(&payload)?)
}

/// The hash of a payload, for those who store it. 54000 for one that is over `outbox.max_payload_bytes`.
pub fn of(payload: &Payload<'_>) -> Result<String, OutboxError> {
    if let Some(limit) = settings::max_payload_bytes()
        && payload.size() > limit
    {
        return Err(OutboxError::PayloadTooLarge { size: payload.size(), limit });
    }
    digest(payload)
}

fn digest(payload: &Payload<'_>) -> Result<String, OutboxError> {
    let stored = payload.detoast();
    let mut digest = BlockDigest::new();
    canonical::write(stored.container(), encoding::converter(), &mut digest).map_err(
        |error| match error {
            Unwritable::Damaged => OutboxError::DamagedPayload,
            Unwritable::OutOfMemory => OutboxError::OutOfMemory,
        },
    )?;
    Ok(digest.finish())
}

/// Whether a text looks like a payload hash.
pub fn is_hash(text: &[u8]) -> bool {
    text.len() == 64 && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a stored jsonb is an object.
pub fn is_object(stored: &[u8]) -> bool {
    stored::Container::new(stored).is_ok_and(stored::Container::is_object)
}

/// SHA-256 behind a buffer: most pieces of a text are a few bytes, and the digest is quick only on blocks.
struct BlockDigest {
    digest: Sha256,
    buffer: [u8; BlockDigest::BUFFER],
    filled: usize,
}

impl BlockDigest {
    const BUFFER: usize = 1024;

    fn new() -> Self {
        Self { digest: Sha256::new(), buffer: [0; Self::BUFFER], filled: 0 }
    }

    fn flush(&mut self) {
        // Hashing a hundred megabytes takes a second or two, and can be cancelled.
        pg_sys::check_for_interrupts!();
        self.digest.update(&self.buffer[..self.filled]);
        self.filled = 0;
    }

    fn finish(mut self) -> String {
        self.flush();
        hex::encode(self.digest.finalize())
    }
}

impl Sink for BlockDigest {
    fn put(&mut self, text: &[u8]) {
        if self.filled + text.len() > Self::BUFFER {
            self.flush();
        }
        if text.len() > Self::BUFFER {
            self.digest.update(text);
            return;
        }
        self.buffer[self.filled..self.filled + text.len()].copy_from_slice(text);
        self.filled += text.len();
    }
}
