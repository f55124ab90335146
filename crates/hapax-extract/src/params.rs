//! What a caller may say about how to extract.

/// Parameters with their defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The model to ask, where the extractor has one.
    pub model: Option<String>,
    /// How freely it answers.
    pub temperature: f64,
    /// How long its answer may be, in tokens.
    pub max_tokens: u32,
    /// What its randomness begins with.
    pub seed: Option<i64>,
    /// How long a chunk is at most, in characters.
    pub chunk_size: usize,
    /// How many chunks are worked on at once. Changes no answer.
    pub concurrency: usize,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            model: None,
            temperature: 0.0,
            max_tokens: 4096,
            seed: None,
            chunk_size: 2000,
            concurrency: 8,
        }
    }
}
