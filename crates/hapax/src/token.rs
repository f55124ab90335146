//! Tokens, which let clients in where a ledger is served.

use std::time::Duration;

use hapax_core::name::Namespace;
use hapax_core::time::Timestamp;
use hapax_core::token::{Role, Secret, Token, TokenId};
use hapax_store::{command, read};

use crate::engine::{Hapax, random};
use crate::error::Error;

impl Hapax {
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
    ///     hapax.create_token(Role::Operator, Some(billing), "worker 3", None).await?;
    /// assert!(secret.reveal().starts_with("hpx_"));
    /// assert_eq!(hapax.tokens().await?, [token.clone()]);
    /// assert!(hapax.revoke_token(token.id).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_token(
        &self,
        role: Role,
        namespace: Option<Namespace>,
        holder: &str,
        lifetime: Option<Duration>,
    ) -> Result<(Token, Secret), Error> {
        let secret = Secret::new(TokenId::from_bytes(random()?), random()?);
        let created = self.wall().await?;
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
        self.call(command::AdmitToken(token.clone())).await?;
        Ok((token, secret))
    }

    /// All tokens, oldest first.
    pub async fn tokens(&self) -> Result<Vec<Token>, Error> {
        Ok(read(&*self.inner.store, |view| view.tokens()).await?)
    }

    /// Revokes a token: it lets no client in any more. Returns whether there was one.
    pub async fn revoke_token(&self, token: TokenId) -> Result<bool, Error> {
        self.call(command::Revoke { token }).await
    }

    /// The time by the store's clock.
    pub async fn wall(&self) -> Result<Timestamp, Error> {
        Ok(read(&*self.inner.store, |view| Ok(view.now().wall)).await?)
    }

    /// The settings that durability depends on and that are turned off now, as a reload of the server's
    /// configuration can do. Empty if what is acknowledged reaches the disk, and for a ledger in a file.
    pub async fn turned_off(&self) -> Result<Vec<String>, Error> {
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.inner.postgres.clone() {
            return Ok(crate::engine::blocking(move || postgres.turned_off()).await?);
        }
        Ok(Vec::new())
    }
}
