//! The four states of an event.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Pending,
    Processing,
    Completed,
    Dead,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Dead => "dead",
        }
    }

    /// The state that the column's text names; the domain `outbox_status` admits no other text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        [Self::Pending, Self::Processing, Self::Completed, Self::Dead]
            .into_iter()
            .find(|status| status.as_str().as_bytes() == text)
    }
}
