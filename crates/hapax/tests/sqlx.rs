//! The caller's own transaction, where it is sqlx's.

use hapax::inbox::{Receipt, postgres as inbox};
use hapax::{Error, Failure, Hapax, How, Key, Safety};
use hapax_testkit::Postgres;
use sqlx::{Connection as _, PgConnection, PgTransaction};

/// Proves K-8 for sqlx: writes and outcome are committed together or not at all, and an attempt
/// that was overtaken writes nothing.
#[tokio::test]
async fn sqlx_transactions_take_part() {
    let server = Postgres::start();
    let url = server.url("postgres");
    let hapax = Hapax::builder().background(false).open(&url).await.expect("a ledger");
    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    server.sql("postgres", "CREATE TABLE account (balance int)");
    let balances = || server.sql("postgres", "SELECT count(*) FROM account");
    let deposit = async |tx: &mut PgTransaction<'_>, _: &hapax::Claim| {
        sqlx::query("INSERT INTO account VALUES (100)").execute(&mut **tx).await?;
        Ok::<_, Failure>("deposited")
    };

    let key = Key::derive("test.v1", &[("n", b"1")]).expect("a key");
    for (commit, how) in [(false, How::Executed), (true, How::Executed), (true, How::Replayed)] {
        let mut tx = connection.begin().await.expect("a transaction");
        let done = hapax.effect(key).once_in_sqlx(&mut tx, deposit).await.expect("done");
        assert_eq!((done.body(), done.how), (Some(&b"deposited"[..]), how));
        if commit {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
    }
    assert_eq!(balances(), "1");

    let key = Key::derive("test.v1", &[("n", b"2")]).expect("a key");
    let own = &mut connection;
    let done = hapax
        .effect(key)
        .safety(Safety::Transactional)
        .run(|claim| async move {
            let mut tx = own.begin().await?;
            deposit(&mut tx, &claim).await?;
            claim.settle_in_sqlx(&mut tx, "deposited").await?;
            tx.commit().await?;
            Ok::<_, Failure>("deposited")
        })
        .await;
    assert_eq!(done.expect("an outcome").how, How::Executed);
    assert_eq!(balances(), "2");

    let key = Key::derive("test.v1", &[("n", b"3")]).expect("a key");
    let (database, own) = (&server, &mut connection);
    let answer = hapax
        .effect(key)
        .safety(Safety::Transactional)
        .run(|claim| async move {
            // Another attempt has it now.
            let taken =
                "UPDATE hapax.effect SET attempt = substring(sha256('x'), 1, 16) WHERE state = 0";
            database.sql("postgres", taken);
            let mut tx = own.begin().await?;
            deposit(&mut tx, &claim).await?;
            let settled = claim.settle_in_sqlx(&mut tx, "deposited").await;
            assert!(matches!(settled, Err(Error::Fenced(_))), "{settled:?}");
            Err::<&str, _>(Failure::not_done("overtaken"))
        })
        .await;
    assert!(answer.is_err());
    assert_eq!(balances(), "2");
}

/// Proves O-5 for sqlx.
#[tokio::test]
async fn sqlx_receives_an_event_once() {
    let server = Postgres::start();
    server.sql("postgres", inbox::SCHEMA);
    let url = server.url("postgres");
    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    for (commit, receipt) in
        [(false, Receipt::First), (true, Receipt::First), (true, Receipt::Again)]
    {
        let mut tx = connection.begin().await.expect("a transaction");
        let received = inbox::sqlx::receive_in(&mut tx, "shop", "evt").await.expect("an answer");
        assert_eq!(received, receipt);
        if commit {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
    }
    let mut tx = connection.begin().await.expect("a transaction");
    let kept = inbox::sqlx::forget(&mut tx, std::time::Duration::from_secs(60)).await;
    assert_eq!(kept.expect("an answer"), 0);
}
