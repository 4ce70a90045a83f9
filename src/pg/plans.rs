//! Plans of statements that repeat, kept for the backend: a bounded number of them in bounded memory, those used least
//! recently gone first, and those of relations that are gone or changed at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::PgList;
use pgrx::pg_sys;

use crate::error::{Error, Result};

/// So many statements are kept at most, in so many bytes.
const MAX_PLANS: usize = 500;
const MAX_BYTES: usize = 32 * 1024 * 1024;

struct Kept {
    plan: pg_sys::SPIPlanPtr,
    /// Executions that are going on: a function of a query may come back here.
    running: u32,
    /// When it was last used, in uses of the whole cache.
    used: u64,
    bytes: usize,
    /// Not to be used again; freed when nothing runs it any more.
    stale: bool,
}

#[derive(Default)]
struct Plans {
    by_text: HashMap<Rc<str>, Kept>,
    /// Stale ones whose text may be in `by_text` again.
    old: Vec<Kept>,
    uses: u64,
}

thread_local! {
    static PLANS: RefCell<Plans> = RefCell::default();
}

/// A plan that can't be freed while this lives.
pub struct InUse {
    text: Rc<str>,
    plan: pg_sys::SPIPlanPtr,
}

impl InUse {
    /// The plan itself.
    pub fn pointer(&self) -> pg_sys::SPIPlanPtr {
        self.plan
    }
}

impl Drop for InUse {
    /// Plain memory of ours, so sound while unwinding.
    fn drop(&mut self) {
        PLANS.with_borrow_mut(|plans| {
            let Plans { by_text, old, .. } = plans;
            let kept = by_text.get_mut(&self.text).into_iter().chain(old).find(|k| k.plan == self.plan);
            if let Some(kept) = kept {
                kept.running -= 1;
            }
        });
    }
}

/// The kept plan of a text, or the one that `prepare` makes; SPI is connected.
pub fn kept(text: &str, prepare: impl FnOnce() -> Result<pg_sys::SPIPlanPtr>) -> Result<InUse> {
    if let Some(known) = PLANS.with_borrow_mut(|plans| plans.begin(text)) {
        return Ok(known);
    }
    sweep();
    let plan = prepare()?;
    // SAFETY: made in this connection to SPI; kept, it lives until it is freed.
    if unsafe { pg_sys::SPI_keepplan(plan) } < 0 {
        return Err(Error::Internal("SPI_keepplan failed".into()));
    }
    PLANS
        .with_borrow_mut(|plans| {
            plans.by_text.insert(text.into(), Kept { plan, running: 0, used: 0, bytes: 0, stale: false });
            plans.begin(text)
        })
        .ok_or_else(|| Error::Internal("a plan was not kept".into()))
}

/// Forgets kept plans whose text satisfies `stale`.
pub fn forget(stale: impl Fn(&str) -> bool) {
    PLANS.with_borrow_mut(|plans| {
        for (text, kept) in &mut plans.by_text {
            kept.stale |= stale(text);
        }
    });
    sweep();
}

/// Frees what is stale, what PostgreSQL says has to be planned anew, and what is too much.
pub fn sweep() {
    PLANS.with_borrow_mut(Plans::sweep);
}

impl Plans {
    fn begin(&mut self, text: &str) -> Option<InUse> {
        let (key, _) = self.by_text.get_key_value(text)?;
        let text = key.clone();
        let kept = self.by_text.get_mut(&text).filter(|k| !k.stale)?;
        self.uses += 1;
        kept.used = self.uses;
        kept.running += 1;
        Some(InUse { text, plan: kept.plan })
    }

    fn sweep(&mut self) {
        let gone: Vec<Rc<str>> = self
            .by_text
            .iter_mut()
            .filter_map(|(text, kept)| {
                let (valid, bytes) = kept.measure();
                kept.bytes = bytes;
                // One that is running may be valid again when it is done.
                (kept.stale || (!valid && kept.running == 0)).then(|| text.clone())
            })
            .collect();
        gone.iter().for_each(|text| self.remove(text));
        let mut bytes: usize = self.by_text.values().map(|k| k.bytes).sum();
        while self.by_text.len() >= MAX_PLANS || bytes > MAX_BYTES {
            let idle = self.by_text.iter().filter(|(_, k)| k.running == 0);
            let Some((text, size)) = idle.min_by_key(|(_, k)| k.used).map(|(t, k)| (t.clone(), k.bytes))
            else {
                break;
            };
            bytes -= size;
            self.remove(&text);
        }
        self.old.retain(|kept| kept.running > 0 || !kept.free());
    }

    fn remove(&mut self, text: &str) {
        if let Some(kept) = self.by_text.remove(text)
            && (kept.running > 0 || !kept.free())
        {
            self.old.push(Kept { stale: true, ..kept });
        }
    }
}

impl Kept {
    /// Can the plan be used as it is, and how much memory does it take?
    fn measure(&self) -> (bool, usize) {
        // SAFETY: a kept plan; its sources and their generic plans have memory contexts of their own.
        unsafe {
            let sources =
                PgList::<pg_sys::CachedPlanSource>::from_pg(pg_sys::SPI_plan_get_plan_sources(self.plan));
            let (mut valid, mut bytes) = (true, 0);
            for source in sources.iter_ptr() {
                valid &= (*source).is_valid;
                bytes += pg_sys::MemoryContextMemAllocated((*source).context, true);
                if !(*source).gplan.is_null() {
                    bytes += pg_sys::MemoryContextMemAllocated((*(*source).gplan).context, true);
                }
            }
            (valid, bytes)
        }
    }

    /// Frees the plan, which must not be running.
    fn free(&self) -> bool {
        // SAFETY: a kept plan that nothing runs, and that is forgotten with this call.
        unsafe { pg_sys::SPI_freeplan(self.plan) == 0 }
    }
}
