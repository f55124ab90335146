//! Tokens, which let clients in where a ledger is served.

use std::time::Duration;

use hapax_core::name::Namespace;
use hapax_core::token::{Role, Secret, Token, TokenId};
use hapax_store::{command, read};

use crate::engine::{Hapax, random};
use crate::error::Error;

/// The tokens of a ledger. Made by [`Hapax::tokens`].
#[derive(Clone, Copy)]
pub struct Tokens<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The tokens that let clients in.
    pub fn tokens(&self) -> Tokens<'_> {
        Tokens { hapax: self }
    }
}

impl Tokens<'_> {
    /// Makes a token, in one namespace or in all of them. Its secret is shown now or never.
    ///
    /// ```
    /// use hapax::{Hapax, Namespace, Role};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let billing = Namespace::new("billing")?;
    /// let (token, secret) =
    ///     hapax.tokens().create(Role::Operator, Some(billing), "worker 3", None).await?;
    /// assert!(secret.reveal().starts_with("hpx_"));
    /// assert_eq!(hapax.tokens().list().await?, [token.clone()]);
    /// assert!(hapax.tokens().revoke(token.id).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create(
        self,
        role: Role,
        namespace: Option<Namespace>,
        holder: &str,
        lifetime: Option<Duration>,
    ) -> Result<(Token, Secret), Error> {
        let secret = Secret::new(TokenId::from_bytes(random()?), random()?);
        let created = self.hapax.maintenance().wall().await?;
        let ms = lifetime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let token = Token {
            id: secret.id(),
            digest: secret.digest(),
            role,
            namespace,
            holder: holder.to_owned(),
            created,
            expires: ms.map(|ms| created.plus_ms(ms)),
        };
        self.hapax.call(command::AdmitToken(token.clone())).await?;
        Ok((token, secret))
    }

    /// All tokens, oldest first.
    pub async fn list(self) -> Result<Vec<Token>, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.tokens()).await?)
    }

    /// Revokes a token: it lets no client in any more. Returns whether there was one.
    pub async fn revoke(self, token: TokenId) -> Result<bool, Error> {
        self.hapax.call(command::Revoke { token }).await
    }
}
