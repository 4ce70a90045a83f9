//! The support matrix: every construct that is not kept differentially, with its stable word and the reason.
#![forbid(unsafe_code)]

/// A construct that runs as `full` under `auto`, and is refused by name under `differential`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    pub construct: Construct,
    /// What of the query it is: a function, a table, an alias; empty when the word says it all.
    pub what: String,
}

macro_rules! constructs {
    ($($variant:ident, $word:literal, $why:literal;)*) => {
        /// Constructs without a differential rule yet.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Construct { $($variant),* }

        impl Construct {
            /// All of them, for tests and documentation.
            pub const ALL: &'static [Construct] = &[$(Construct::$variant),*];

            /// Stable word.
            pub fn word(self) -> &'static str {
                match self { $(Construct::$variant => $word),* }
            }

            /// Why it has no differential rule.
            pub fn why(self) -> &'static str {
                match self { $(Construct::$variant => $why),* }
            }
        }
    };
}

constructs! {
    OuterJoin, "OUTER JOIN", "rows that lose or gain their partner are null-extended, which has no rule yet";
    Sublink, "SUBQUERY EXPRESSION", "EXISTS, IN and scalar subqueries have no rule yet";
    Window, "WINDOW FUNCTION", "a change can move every row of its partition";
    Limit, "LIMIT", "a row outside the limit can move in";
    DistinctOn, "DISTINCT ON", "which row of a group is first depends on the others";
    SetOperation, "INTERSECT or EXCEPT", "has no rule yet";
    GroupingSets, "GROUPING SETS", "has no rule yet";
    RecursiveCte, "WITH RECURSIVE", "has no rule yet";
    Lateral, "LATERAL", "a correlated subquery in FROM has no rule yet";
    FromFunction, "FUNCTION IN FROM", "its rows are not captured";
    Values, "VALUES IN FROM", "has no rule yet";
    NoTable, "QUERY WITHOUT A TABLE", "nothing to capture";
    TableSample, "TABLESAMPLE", "samples are not a function of the rows";
    SetReturning, "SET-RETURNING FUNCTION", "in the select list it has no rule yet";
    StableFunction, "FUNCTION THAT IS NOT IMMUTABLE", "its result can change without any row changing";
    Aggregate, "AGGREGATE FUNCTION", "it has no rule yet";
    AggregateModifier, "DISTINCT OR ORDER BY IN AN AGGREGATE", "has no rule yet";
    Grouping, "GROUPING()", "has no rule yet";
    SystemColumn, "SYSTEM COLUMN", "it changes without the row's values changing";
    WholeRow, "WHOLE ROW", "the row type changes with every column of the table";
    TypeWithoutEquality, "TYPE WITHOUT EQUALITY OR HASH", "rows are found by comparing and hashing all columns";
    Collation, "NONDETERMINISTIC COLLATION", "which of several equal strings is shown depends on the plan";
    MaterializedView, "MATERIALIZED VIEW", "it has no row triggers";
    Unlogged, "UNLOGGED TABLE", "crash recovery empties it without any row event";
    Inheritance, "INHERITANCE", "children of a plain table are not captured";
    OnlyPartitioned, "ONLY OF A PARTITIONED TABLE", "it has no rows, and its partitions' changes are captured as its own";
    ForeignPartition, "FOREIGN PARTITION", "it has no capture";
    RowSecurity, "ROW SECURITY", "which rows count depends on policies, not on the rows alone";
    ViewPrivilege, "TABLE BEHIND A VIEW", "the owner may not read it directly, only through the view";
    VirtualColumn, "VIRTUAL GENERATED COLUMN", "triggers don't see its value";
    ManyChanges, "MANY JOINED TABLES", "more than five inputs of one join changed at once; this refresh is full";
}

impl Unsupported {
    /// `what` is shown in double quotes by the caller where it is a name.
    pub fn new(construct: Construct, what: impl Into<String>) -> Self {
        Unsupported { construct, what: what.into() }
    }

    /// One line: the construct, its place in the query, the reason.
    pub fn describe(&self) -> String {
        let word = self.construct.word();
        if self.what.is_empty() {
            format!("{word}: {}", self.construct.why())
        } else {
            format!("{word} ({}): {}", self.what, self.construct.why())
        }
    }
}
