//! Tokens, in memory.

use hapax_core::token::{Token, TokenId};

use super::MemoryTxn;
use crate::error::StoreError;
use crate::token::{TokenTxn, TokenView};

impl TokenView for MemoryTxn<'_> {
    fn tokens(&mut self) -> Result<Vec<Token>, StoreError> {
        let mut tokens: Vec<_> = self.tables.tokens.values().cloned().collect();
        tokens.sort_by_key(|token| (token.created, token.id));
        Ok(tokens)
    }
}

impl TokenTxn for MemoryTxn<'_> {
    fn put_token(&mut self, token: &Token) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.tokens, token.id, Some(token.clone()));
        Ok(())
    }

    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError> {
        let known = self.tables.tokens.contains_key(&id);
        self.set(|tables| &mut tables.tokens, id, None);
        Ok(known)
    }
}
