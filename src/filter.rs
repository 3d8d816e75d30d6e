//! The filter of a claim: which events it is for.

use crate::argument;
use crate::array;
use crate::datum::Text;
use crate::error::OutboxError;
use crate::plans::Value;
use pgrx::{Array, IntoDatum, Uuid, pg_sys};

/// Which events a claim is for. The cursor is one for each filter, so that a worker which serves one type is
/// not slowed by the backlog of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Only these event types, in the database's encoding, in ascending order; all when there are none.
    event_types: Vec<Vec<u8>>,
    /// Only events of this tenant.
    tenant: Option<[u8; 16]>,
    /// Only the head of each aggregate.
    pub ordered: bool,
}

impl Filter {
    /// `22004` for NULL as `ordered` or among the event types; `22023` for a list without event types, an event
    /// type that is none, and the all-zero tenant.
    pub fn new(
        event_types: Option<Array<Text<'_>>>,
        tenant: Option<Uuid>,
        ordered: Option<bool>,
    ) -> Result<Self, OutboxError> {
        let mut types = Vec::new();
        if event_types.is_some() {
            for event_type in argument::elements("only_event_types", event_types.as_ref())? {
                types.push(argument::name("only_event_types", Some(event_type))?.bytes().to_vec());
            }
            if types.is_empty() {
                let rule = "Pass at least one event type, or NULL for all.";
                return argument::invalid("only_event_types", "empty", rule);
            }
        }
        types.sort_unstable();
        types.dedup();
        let tenant = argument::tenant("only_tenant", tenant)?.map(|tenant| *tenant.as_bytes());
        Ok(Self { event_types: types, tenant, ordered: argument::required("ordered", ordered)? })
    }

    /// Every event, in order.
    pub fn all_in_order() -> Self {
        Self { event_types: Vec::new(), tenant: None, ordered: true }
    }

    /// The parameters of a statement: event types and tenant, each NULL for all.
    pub fn values(&self) -> [Value; 2] {
        let types = self.event_types.iter().map(|event_type| event_type.as_slice().into_datum());
        [
            (!self.event_types.is_empty()).then(|| array::of(pg_sys::TEXTOID, types)),
            self.tenant.as_ref().map(|tenant| pg_sys::Datum::from(tenant.as_ptr())),
        ]
    }

    /// Whether it is for events of this type and tenant.
    pub fn admits(&self, event_type: &[u8], tenant: Option<&Uuid>) -> bool {
        (self.event_types.is_empty()
            || self.event_types.binary_search_by(|known| known.as_slice().cmp(event_type)).is_ok())
            && self.tenant.is_none_or(|wanted| tenant.is_some_and(|tenant| *tenant.as_bytes() == wanted))
    }
}

/// Whether the filter admits `event`, as an expression of SQL over the parameters of `Filter::values`.
macro_rules! admitted {
    ($event_types:literal, $tenant:literal) => {
        concat!(
            "(",
            $event_types,
            " IS NULL OR event.event_type::pg_catalog.text OPERATOR(pg_catalog.=) ANY (",
            $event_types,
            ")) AND (",
            $tenant,
            " IS NULL OR event.tenant_id OPERATOR(pg_catalog.=) ",
            $tenant,
            ")"
        )
    };
}
pub(crate) use admitted;

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(event_types: &[&str], tenant: Option<u8>) -> Filter {
        Filter {
            event_types: event_types.iter().map(|event_type| event_type.as_bytes().to_vec()).collect(),
            tenant: tenant.map(|byte| [byte; 16]),
            ordered: false,
        }
    }

    #[test]
    fn a_filter_admits_its_types_and_its_tenant() {
        let tenant = |byte| Uuid::from_bytes([byte; 16]);
        assert!(filter(&[], None).admits(b"any", None));
        assert!(filter(&["a", "b"], None).admits(b"b", Some(&tenant(1))));
        assert!(!filter(&["a", "b"], None).admits(b"c", None));
        assert!(filter(&["a"], Some(1)).admits(b"a", Some(&tenant(1))));
        assert!(!filter(&["a"], Some(1)).admits(b"a", Some(&tenant(2))));
        assert!(!filter(&["a"], Some(1)).admits(b"a", None));
    }
}
