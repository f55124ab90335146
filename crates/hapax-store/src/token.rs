//! Tokens at the seam.

use hapax_core::token::{Token, TokenId};

use crate::error::StoreError;

/// The reads of tokens.
pub trait TokenView {
    /// All tokens, oldest first.
    fn tokens(&mut self) -> Result<Vec<Token>, StoreError>;
}

/// The writes of tokens.
pub trait TokenTxn {
    /// Writes a new token.
    fn put_token(&mut self, token: &Token) -> Result<(), StoreError>;

    /// Removes a token. Returns whether there was one.
    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError>;
}
