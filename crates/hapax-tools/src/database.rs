//! The ledger's own database, as tools see it: a change and its outcome are committed together.
//!
//!   begin ─▶ the change ─▶ settle ─▶ commit
//!
//! A failure before the commit leaves nothing behind. If the answer to a commit was lost, the
//! engine reads from the ledger whether it took place: the outcome is there if the change is.

mod fault;
mod fence;
mod file;
#[cfg(feature = "postgres")]
mod server;

use hapax::Hapax;

pub(crate) use fault::Fault;
pub(crate) use fence::Scope;
pub(crate) use file::File;
#[cfg(feature = "postgres")]
pub(crate) use server::{Seal, Server, Work};

/// The target in keys. Tools can settle in one database only. It may move to another address, and
/// that must not make a change another one.
pub(crate) const TARGET: &str = "ledger";

/// The database that the ledger is in. Cheap to clone.
#[derive(Clone)]
pub struct Database(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    File(File),
    #[cfg(feature = "postgres")]
    Server(Server),
}

impl Database {
    /// The file that a ledger is in, or the database at `url`, which has to be the one that the
    /// ledger is in.
    ///
    /// ```
    /// use hapax::Hapax;
    /// use hapax_items::Items;
    /// use hapax_tools::{Database, Kv, Sql};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let hapax = Hapax::open(directory.path().join("hapax.db")).await?;
    /// let database = Database::of(&hapax, None)?;
    /// let sql = Sql::new("sql", database.clone(), None)?;
    /// let kv = Kv::new("kv", database, hapax.namespace().clone());
    /// let items = Items::new(hapax, vec![sql.into(), kv.into()], Vec::new())?;
    /// let script = r#"
    ///     await withItem("42", "Order 42", async (ctx) => {
    ///         if (ctx.item.isDone) return;
    ///         await sql.execute({
    ///             id: "book",
    ///             statements: [
    ///                 { sql: "CREATE TABLE IF NOT EXISTS book (n INTEGER)" },
    ///                 { sql: "INSERT INTO book VALUES (?1)", params: [42] },
    ///             ],
    ///         });
    ///         await kv.set({ key: "last", value: 42 });
    ///     });
    /// "#;
    /// items.publish("orders", script, "grace").await?;
    /// items.drive("orders", None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(hapax: &Hapax, url: Option<&str>) -> Result<Self, hapax::Error> {
        match url {
            None => Ok(Self(Kind::File(File::of(hapax)?))),
            #[cfg(feature = "postgres")]
            Some(url) => Ok(Self(Kind::Server(Server::at(url)))),
            #[cfg(not(feature = "postgres"))]
            Some(_) => Err(hapax::Error::Unsupported("a database, without the feature `postgres`")),
        }
    }
}
