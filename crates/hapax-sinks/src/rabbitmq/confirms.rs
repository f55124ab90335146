//! Published messages that are not confirmed yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use amqprs::callbacks::ChannelCallback;
use amqprs::channel::Channel;
use amqprs::error::Error;
use amqprs::{Ack, BasicProperties, Cancel, CloseChannel, Nack, Return};
use async_trait::async_trait;
use hapax::outbox::{DeliveryRefusal, Retryability};
use tokio::sync::oneshot;

type Answer = Result<(), DeliveryRefusal>;

/// The confirmations of a channel. A broker numbers the messages on a channel from 1, and confirms
/// by number.
#[derive(Clone, Default)]
pub(super) struct Confirms {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    published: u64,
    waiting: BTreeMap<u64, PendingConfirm>,
    closed: Option<String>,
}

struct PendingConfirm {
    id: String,
    /// Why the broker returned it, if it did. The return comes before the confirmation.
    returned: Option<String>,
    answer: oneshot::Sender<Answer>,
}

impl Confirms {
    /// Gives the next number to the message with this id. The caller has to call it in the order of
    /// publishing.
    pub(super) fn expect(&self, id: String) -> Result<oneshot::Receiver<Answer>, DeliveryRefusal> {
        let mut state = self.lock();
        if let Some(reason) = &state.closed {
            return Err(DeliveryRefusal {
                reason: reason.clone(),
                retryability: Retryability::SinkDown,
            });
        }
        let (answer, receiver) = oneshot::channel();
        state.published += 1;
        let number = state.published;
        state.waiting.insert(number, PendingConfirm { id, returned: None, answer });
        Ok(receiver)
    }

    /// Fails all messages that wait for a confirmation, and all later ones.
    pub(super) fn close(&self, reason: String) {
        let mut state = self.lock();
        state.closed.get_or_insert(reason);
        state.waiting.clear();
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().closed.is_none()
    }

    /// Why a message got no confirmation.
    pub(super) fn closed(&self) -> DeliveryRefusal {
        let reason = self.lock().closed.clone().unwrap_or_else(|| "not confirmed".into());
        DeliveryRefusal { reason, retryability: Retryability::SinkDown }
    }

    fn settle(&self, number: u64, multiple: bool, confirmed: bool) {
        let mut state = self.lock();
        let settled = if multiple {
            let rest = state.waiting.split_off(&(number + 1));
            std::mem::replace(&mut state.waiting, rest)
        } else {
            state.waiting.remove(&number).map(|waiting| (number, waiting)).into_iter().collect()
        };
        for waiting in settled.into_values() {
            let answer = match (waiting.returned, confirmed) {
                (Some(reason), _) => {
                    Err(DeliveryRefusal { reason, retryability: Retryability::SinkDown })
                }
                (None, true) => Ok(()),
                (None, false) => {
                    let reason = "the broker could not take it".into();
                    Err(DeliveryRefusal { reason, retryability: Retryability::Perhaps })
                }
            };
            let _ = waiting.answer.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[async_trait]
impl ChannelCallback for Confirms {
    async fn close(&mut self, _: &Channel, close: CloseChannel) -> Result<(), Error> {
        Confirms::close(self, close.to_string());
        Ok(())
    }

    async fn cancel(&mut self, _: &Channel, _: Cancel) -> Result<(), Error> {
        Ok(())
    }

    async fn flow(&mut self, _: &Channel, active: bool) -> Result<bool, Error> {
        Ok(active)
    }

    async fn publish_ack(&mut self, _: &Channel, ack: Ack) {
        self.settle(ack.delivery_tag(), ack.mutiple(), true);
    }

    async fn publish_nack(&mut self, _: &Channel, nack: Nack) {
        self.settle(nack.delivery_tag(), nack.multiple(), false);
    }

    async fn publish_return(
        &mut self,
        _: &Channel,
        returned: Return,
        properties: BasicProperties,
        _: Vec<u8>,
    ) {
        let mut state = self.lock();
        let id = properties.message_id().map(String::as_str);
        let found = state.waiting.values_mut().find(|waiting| Some(waiting.id.as_str()) == id);
        if let Some(waiting) = found {
            waiting.returned = Some(format!("no queue takes it: {}", returned.reply_text()));
        }
    }
}
