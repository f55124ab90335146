//! An operation that settles in its caller's own transaction of sqlx.

use hapax::{Hapax, Safety};
use hapax_pipeline::{Operation, Pipeline, WorkError, WorkResult};
use hapax_testkit::Postgres;
use sqlx::{Connection as _, PgConnection};

/// Proves P-7 for sqlx: the row, the outcome and the release of the lock are committed together.
#[tokio::test]
async fn an_operation_settles_in_a_transaction_of_sqlx() {
    let server = Postgres::start();
    let url = server.url("postgres");
    server.sql("postgres", "CREATE TABLE flow (cms int)");
    let hapax = Hapax::builder().background(false).open(&url).await.expect("a ledger");
    let pipeline = Pipeline::new(hapax);
    let operation = Operation {
        pipeline_id: "hydrology".into(),
        task_id: "load".into(),
        dataset_id: "flow".into(),
        operation_type: "append".into(),
        version: "v1".into(),
        checksum_in: "sha256:5f2b".into(),
        params_hash: "sha256:9c41".into(),
        timestamp_bucket: "2026-11-16T00:00:00Z".into(),
        ..Operation::default()
    };
    let load = async |commits: bool| {
        let builder = pipeline.operation(operation.clone());
        let builder = builder.with(|effect| effect.safety(Safety::Transactional));
        let done = builder.run(|work| {
            let url = &url;
            async move {
                let mut connection = PgConnection::connect(url).await?;
                let mut tx = connection.begin().await?;
                sqlx::query("INSERT INTO flow VALUES (214)").execute(&mut *tx).await?;
                let made = WorkResult::new("1 row");
                work.settle_in_sqlx(&mut tx, &made).await?;
                match commits {
                    true => tx.commit().await?,
                    false => tx.rollback().await?,
                }
                Ok::<_, WorkError>(made)
            }
        });
        done.await
    };
    load(false).await.expect_err("rolled back");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM flow"), "0");
    for _ in 0..2 {
        load(true).await.expect("loaded, and then replayed");
        assert_eq!(server.sql("postgres", "SELECT count(*) FROM flow"), "1");
    }
}
