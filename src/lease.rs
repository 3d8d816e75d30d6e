//! The fence: only who holds an event's lease may settle it.

use crate::error::Found;
use crate::status::Status;

/// The lease as it stands in the row.
#[derive(Debug, Clone, Copy)]
pub struct Lease<'a> {
    pub status: Status,
    pub worker: Option<&'a [u8]>,
    pub attempt: i32,
}

impl Lease<'_> {
    /// Whether `worker` holds it, at that very attempt if one is passed; or what is found instead.
    pub fn held_by(
        &self,
        worker: &[u8],
        attempt: Option<i32>,
        show: fn(&[u8]) -> String,
    ) -> Result<(), Found> {
        match self.status {
            Status::Completed => Err(Found::Completed),
            Status::Dead => Err(Found::Dead),
            Status::Pending if self.attempt == 0 => Err(Found::NeverClaimed),
            Status::Pending => Err(Found::Pending { attempt: self.attempt }),
            Status::Processing if self.worker != Some(worker) => {
                Err(Found::LeasedTo { worker: show(self.worker.unwrap_or_default()), attempt: self.attempt })
            }
            Status::Processing => match attempt {
                Some(passed) if passed != self.attempt => {
                    Err(Found::OtherAttempt { attempt: self.attempt, passed })
                }
                _ => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: Status, attempt: i32, passed: Option<i32>) -> Result<(), Found> {
        let lease = Lease { status, worker: (status == Status::Processing).then_some(b"w"), attempt };
        lease.held_by(b"w", passed, |worker| String::from_utf8_lossy(worker).into_owned())
    }

    #[test]
    fn the_holder_may_settle() {
        assert_eq!(judged(Status::Processing, 3, None), Ok(()));
        assert_eq!(judged(Status::Processing, 3, Some(3)), Ok(()));
    }

    #[test]
    fn everybody_else_is_told_what_is_found() {
        assert_eq!(
            judged(Status::Processing, 3, Some(2)),
            Err(Found::OtherAttempt { attempt: 3, passed: 2 })
        );
        assert_eq!(judged(Status::Pending, 0, None), Err(Found::NeverClaimed));
        assert_eq!(judged(Status::Pending, 2, None), Err(Found::Pending { attempt: 2 }));
        assert_eq!(judged(Status::Completed, 2, None), Err(Found::Completed));
        assert_eq!(judged(Status::Dead, 2, Some(2)), Err(Found::Dead));
        let lease = Lease { status: Status::Processing, worker: Some(b"other"), attempt: 1 };
        assert_eq!(
            lease.held_by(b"w", None, |worker| String::from_utf8_lossy(worker).into_owned()),
            Err(Found::LeasedTo { worker: "other".into(), attempt: 1 })
        );
    }
}
