//! What an experiment counted, and what it found wrong.

/// The figures of one experiment.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// What was counted, in order.
    pub figures: Vec<(String, u64)>,
    /// What went wrong. Nothing, if hapax keeps its promises and the experiment means something.
    pub violations: Vec<String>,
    /// What could not be tried here, and why.
    pub skipped: Vec<String>,
}

/// How many violations are told in full.
const MOST: usize = 20;

impl Report {
    /// Nothing counted yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds to a figure.
    pub fn count(&mut self, what: impl Into<String>, more: u64) {
        let what = what.into();
        match self.figures.iter_mut().find(|(known, _)| *known == what) {
            Some((_, count)) => *count += more,
            None => self.figures.push((what, more)),
        }
    }

    /// Adds everything that another counted and found.
    pub fn add(&mut self, other: Self) {
        for (what, count) in other.figures {
            self.count(what, count);
        }
        other.violations.into_iter().for_each(|violation| self.violation(violation));
        self.skipped.extend(other.skipped);
    }

    /// A figure, 0 if it was never counted.
    pub fn figure(&self, what: &str) -> u64 {
        self.figures.iter().find(|(known, _)| known == what).map_or(0, |(_, count)| *count)
    }

    /// Something cannot be tried here.
    pub fn skip(&mut self, why: impl Into<String>) {
        self.skipped.push(why.into());
    }

    /// Something is wrong.
    pub fn violation(&mut self, what: impl Into<String>) {
        if self.violations.len() < MOST {
            self.violations.push(what.into());
        }
    }

    /// Something is wrong unless this holds.
    pub fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violation(what());
        }
    }

    /// The experiment means nothing unless at least this much of something was seen.
    pub fn at_least(&mut self, what: &str, least: u64) {
        let seen = self.figure(what);
        self.expect(seen >= least, || format!("vacuous: {what}: {seen}, at least {least} needed"));
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (what, count) in &self.figures {
            writeln!(f, "  {count:>10}  {what}")?;
        }
        for why in &self.skipped {
            writeln!(f, "  skipped: {why}")?;
        }
        for violation in &self.violations {
            writeln!(f, "  WRONG: {violation}")?;
        }
        Ok(())
    }
}
