//! The figures of an experiment, and its violations.

/// The report of one experiment.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The experiment's title.
    pub title: String,
    /// The figures, in order.
    pub figures: Vec<(String, u64)>,
    /// The violations: none if hapax keeps its promises and the experiment means something.
    pub violations: Vec<String>,
    /// The parts that could not be tried here, and why.
    pub skipped: Vec<String>,
}

/// How many violations are kept.
const MOST: usize = 20;

impl Report {
    /// A report without figures.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds to a figure.
    pub fn count(&mut self, figure: impl Into<String>, more: u64) {
        let figure = figure.into();
        match self.figures.iter_mut().find(|(known, _)| *known == figure) {
            Some((_, count)) => *count += more,
            None => self.figures.push((figure, more)),
        }
    }

    /// Adds the figures and the findings of another report.
    pub fn add(&mut self, other: Self) {
        for (figure, count) in other.figures {
            self.count(figure, count);
        }
        other.violations.into_iter().for_each(|violation| self.violation(violation));
        self.skipped.extend(other.skipped);
    }

    /// A figure, 0 if it was never counted.
    pub fn figure(&self, figure: &str) -> u64 {
        self.figures.iter().find(|(known, _)| known == figure).map_or(0, |(_, count)| *count)
    }

    /// Records a part that cannot be tried here.
    pub fn skip(&mut self, why: impl Into<String>) {
        self.skipped.push(why.into());
    }

    /// Records a violation.
    pub fn violation(&mut self, violation: impl Into<String>) {
        if self.violations.len() < MOST {
            self.violations.push(violation.into());
        }
    }

    /// Records a violation unless this holds.
    pub fn expect(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds {
            self.violation(violation());
        }
    }

    /// Records a violation unless a figure is this high: otherwise the experiment means nothing.
    pub fn at_least(&mut self, figure: &str, least: u64) {
        let seen = self.figure(figure);
        self.expect(seen >= least, || {
            format!("vacuous: {figure}: {seen}, at least {least} needed")
        });
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (figure, count) in &self.figures {
            writeln!(f, "  {count:>10}  {figure}")?;
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
