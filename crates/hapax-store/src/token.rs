//! Tokens at the seam: whose secrets are admitted.

use hapax_core::token::{Token, TokenId};

use crate::error::StoreError;
use crate::limits::{Limits, check_length};
use crate::txn::Txn;

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

/// Admits callers that present a token.
pub(crate) fn admit(txn: &mut dyn Txn, token: &Token) -> Result<(), StoreError> {
    check_length("the holder", &token.holder)?;
    if txn.tokens()?.len() >= Limits::TOKENS {
        return Err(StoreError::Invalid(format!("there are {} tokens", Limits::TOKENS)));
    }
    txn.put_token(token)
}
