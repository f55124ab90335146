//! Schedules: when a workflow runs by itself.
//!
//! The id of a scheduled run is its instant, `scheduled:2026-11-17T06:00:00Z`, so only one of many
//! nodes runs it. Only the latest instant counts: one run makes up for all instants that were
//! missed while no node was up, because a run goes through all items. Instants from before the
//! schedule was first seen do not count.

use std::time::{Duration, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use hapax::{Failure, Safety, Timestamp};

use crate::error::Error;
use crate::identity;
use crate::service::Items;

/// The prefix of the ids of scheduled runs.
const SCHEDULED: &str = "scheduled:";

/// # Schedules
impl Items {
    /// The schedule of a workflow, if it has one.
    pub fn schedule(&self, workflow: &str) -> Option<String> {
        self.settings(workflow).schedule.clone()
    }

    /// When a workflow runs next by itself, after this time.
    pub fn next_instant(&self, workflow: &str, now: Timestamp) -> Option<Timestamp> {
        let cron = parse(self.settings(workflow).schedule.as_deref()?).ok()?;
        cron.find_next_occurrence(&time(now)?, false).ok().map(stamp)
    }

    /// The scheduled run that is due and that no node has begun.
    pub(crate) async fn scheduled(
        &self,
        workflow: &str,
        now: Timestamp,
    ) -> Result<Option<String>, Error> {
        let settings = self.settings(workflow);
        let Some(schedule) = &settings.schedule else { return Ok(None) };
        let Some(latest) = latest(&parse(schedule)?, now) else { return Ok(None) };
        if latest <= self.scheduled_since(workflow, schedule).await? {
            return Ok(None);
        }
        let since = Duration::from_millis(latest.0.max(0).unsigned_abs());
        let instant = humantime::format_rfc3339_seconds(UNIX_EPOCH + since);
        let id = format!("{SCHEDULED}{instant}");
        let key = identity::run(self.hapax().namespace(), workflow, &id)?;
        Ok(self.hapax().effects().show(key).await?.is_none().then_some(id))
    }

    /// When this schedule was first seen; recorded the first time.
    async fn scheduled_since(&self, workflow: &str, schedule: &str) -> Result<Timestamp, Error> {
        let hapax = self.hapax();
        let key = identity::schedule(hapax.namespace(), workflow, schedule)?;
        if let Some(seen) = hapax.effects().show(key).await? {
            return Ok(seen.created);
        }
        let label: String = format!("schedule of {workflow}").chars().take(60).collect();
        let effect = hapax.effect(key).safety(Safety::Transactional).label(label);
        effect.run(|_| async { Ok::<_, Failure>("seen") }).await?;
        let seen = hapax.effects().show(key).await?;
        Ok(seen.map_or(Timestamp(i64::MAX), |seen| seen.created))
    }
}

/// Reads a schedule.
pub(crate) fn parse(schedule: &str) -> Result<Cron, Error> {
    let refuse = |why: String| Error::Invalid(format!("the schedule {schedule:?}: {why}"));
    if schedule.len() > 256 {
        return Err(Error::Invalid("a schedule has at most 256 bytes".into()));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(schedule).map_err(|error| refuse(error.to_string()))?;
    let ever = cron.find_next_occurrence(&DateTime::UNIX_EPOCH, false);
    ever.map_err(|_| refuse("there is no such day".into()))?;
    Ok(cron)
}

/// The latest instant that has come.
fn latest(cron: &Cron, now: Timestamp) -> Option<Timestamp> {
    cron.find_previous_occurrence(&time(now)?, true).ok().map(stamp)
}

fn time(at: Timestamp) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(at.0)
}

/// Instants are whole seconds, also where the search began between two of them.
fn stamp(at: DateTime<Utc>) -> Timestamp {
    Timestamp(at.timestamp() * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let time = humantime::parse_rfc3339(text).expect("a time");
        Timestamp(time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64)
    }

    fn latest_of(schedule: &str, now: &str) -> String {
        let latest = latest(&parse(schedule).expect("a schedule"), at(now)).expect("there is one");
        let since = Duration::from_millis(latest.0.unsigned_abs());
        humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
    }

    /// Proves I-14.
    #[test]
    fn the_latest_instant_is_in_utc_and_on_the_second() {
        for (schedule, now, latest) in [
            ("0 6 * * *", "2026-11-17T06:00:00Z", "2026-11-17T06:00:00.000Z"),
            ("0 6 * * *", "2026-11-17T06:00:00.250Z", "2026-11-17T06:00:00.000Z"),
            ("0 6 * * *", "2026-11-17T05:59:59.999Z", "2026-11-16T06:00:00.000Z"),
            ("*/15 * * * *", "2026-11-17T06:44:59Z", "2026-11-17T06:30:00.000Z"),
            ("*/10 * * * * *", "2026-11-17T06:44:59.5Z", "2026-11-17T06:44:50.000Z"),
            ("0 9 * * MON", "2026-11-17T06:00:00Z", "2026-11-16T09:00:00.000Z"),
            ("0 0 29 2 *", "2026-11-17T06:00:00Z", "2024-02-29T00:00:00.000Z"),
            ("@daily", "2026-11-17T06:00:00Z", "2026-11-17T00:00:00.000Z"),
        ] {
            assert_eq!(latest_of(schedule, now), latest, "{schedule} at {now}");
        }
    }

    /// Proves I-14.
    #[test]
    fn a_malformed_schedule_is_refused() {
        for schedule in ["", "hourly", "* * * *", "61 * * * *", "0 0 30 2 *", "0 0 0 1 1 * 2030"] {
            assert!(parse(schedule).is_err(), "{schedule:?}");
        }
    }
}
