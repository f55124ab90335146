//! Tokens.

use hapax_core::name::Namespace;
use hapax_core::time::Timestamp;
use hapax_core::token::{Role, Token, TokenId};

use super::*;

cases! {
    /// Proves S-6: a token is found as it was kept, until it is revoked.
    a_token_counts_until_it_is_revoked: |b| {
        let token = |n: u8, role, namespace| Token {
            id: TokenId::from_bytes([n; 8]),
            digest: [n; 32],
            role,
            namespace,
            holder: "naïve".into(),
            created: Timestamp(i64::from(n)),
            expires: (n == 2).then_some(Timestamp(1 << 40)),
        };
        let billing = Namespace::new("billing").expect("a plain name");
        let kept = [
            token(1, Role::Viewer, None),
            token(2, Role::Operator, Some(billing)),
            token(3, Role::Steward, None),
        ];
        for token in kept.iter().rev() {
            b.run(command::AdmitToken(token.clone())).expect("it is admitted");
        }
        assert_eq!(b.view(|view| view.tokens()), kept);
        let revoke = || b.run(command::Revoke { token: kept[1].id }).expect("an answer");
        assert_eq!((revoke(), revoke()), (true, false));
        assert_eq!(b.view(|view| view.tokens()), [kept[0].clone(), kept[2].clone()]);
    }
}
