//! What a change of the schema means for the stream tables, and doing it.
#![forbid(unsafe_code)]

pub mod apply;
mod cure;
mod drops;
mod events;
mod kept;
pub mod net;
mod query;
mod suspend;
pub mod tasks;
mod touched;
mod types;

pub use apply::relation_class;
pub use drops::on_sql_drop;
pub use events::on_ddl_end;
pub use query::alter_query;
pub use suspend::{release, require, resume, suspend, suspend_by_hand, suspend_failing, suspend_for_drop};
pub use types::on_drop_start;
