//! Injected faults.

use windlass_cri::CriCode;

use super::operation::Operation;

/// A planned fault; the first match in order of injection applies to a call.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(super) operation: Operation,
    pub(super) subject: Option<String>,
    pub(super) times: usize,
    pub(super) kind: FaultKind,
}

/// Kinds of faults.
#[derive(Clone, Debug)]
pub(super) enum FaultKind {
    /// Fails without an effect.
    Fail { code: CriCode, message: String },
    /// Hangs until released, then takes effect.
    Hang,
    /// Takes effect and returns `DeadlineExceeded`.
    LoseReply,
}

impl Fault {
    /// The next `times` calls fail without an effect.
    pub fn fail(
        operation: Operation,
        times: usize,
        code: CriCode,
        message: impl Into<String>,
    ) -> Self {
        let kind = FaultKind::Fail {
            code,
            message: message.into(),
        };
        Self {
            operation,
            subject: None,
            times,
            kind,
        }
    }

    /// Every call hangs until [`super::FakeRuntime::release`], then takes effect.
    pub fn hang(operation: Operation) -> Self {
        Self {
            operation,
            subject: None,
            times: usize::MAX,
            kind: FaultKind::Hang,
        }
    }

    /// The next `times` calls take effect and return `DeadlineExceeded`.
    pub fn lose_reply(operation: Operation, times: usize) -> Self {
        Self {
            operation,
            subject: None,
            times,
            kind: FaultKind::LoseReply,
        }
    }

    /// Limits the fault to a subject prefix, such as `default/web` (see [`super::Call::subject`]).
    pub fn on(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    fn matches(&self, operation: Operation, subject: &str) -> bool {
        self.times > 0
            && self.operation == operation
            && self
                .subject
                .as_ref()
                .is_none_or(|wanted| subject.starts_with(wanted.as_str()))
    }
}

/// The planned faults.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    pub(super) fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Takes the fault for a call.
    pub(super) fn take(&mut self, operation: Operation, subject: &str) -> Option<FaultKind> {
        let fault = self
            .faults
            .iter_mut()
            .find(|fault| fault.matches(operation, subject))?;
        if fault.times != usize::MAX {
            fault.times -= 1;
        }
        let kind = fault.kind.clone();
        self.faults.retain(|fault| fault.times > 0);
        Some(kind)
    }

    /// Whether a hung call is not yet released.
    pub(super) fn hangs(&self, operation: Operation, subject: &str) -> bool {
        self.faults
            .iter()
            .any(|f| matches!(f.kind, FaultKind::Hang) && f.matches(operation, subject))
    }

    pub(super) fn release(&mut self, operation: Operation) {
        self.faults
            .retain(|f| !(matches!(f.kind, FaultKind::Hang) && f.operation == operation));
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }
}
