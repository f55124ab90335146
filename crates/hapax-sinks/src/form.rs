//! The form in which a sink gets a record.

use std::fmt;
use std::sync::Arc;

use hapax::outbox::Record;

use crate::envelope;

type Writing = dyn Fn(&Record) -> Result<Option<String>, String> + Send + Sync;

/// How a record is written: as its [`envelope`](mod@envelope) by default.
#[derive(Clone)]
pub struct Form(Arc<Writing>);

impl Form {
    /// A form by this function. `None` sends nothing and counts as delivered. An error says why a
    /// record can never be delivered.
    ///
    /// ```
    /// use hapax_sinks::form::Form;
    ///
    /// let ids = Form::new(|record| Ok(Some(record.id.to_string())));
    /// # let _ = ids;
    /// ```
    pub fn new(
        write: impl Fn(&Record) -> Result<Option<String>, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(write))
    }

    pub(crate) fn write(&self, record: &Record) -> Result<Option<String>, String> {
        (self.0)(record)
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::new(|record| Ok(Some(envelope::text(record))))
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a form")
    }
}
