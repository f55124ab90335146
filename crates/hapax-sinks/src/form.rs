//! What a sink is sent for a record, where that is not the record itself.

use std::fmt;
use std::sync::Arc;

use hapax::outbox::Record;

use crate::envelope;

type Writing = dyn Fn(&Record) -> Result<Option<String>, String> + Send + Sync;

/// How a record is written. As its [`envelope`](mod@envelope), unless said otherwise.
#[derive(Clone)]
pub struct Form(Arc<Writing>);

impl Form {
    /// Written like this. `None` is nothing, and counts as delivered; an error says why a record
    /// can never be.
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
