//! An error of PostgreSQL or of users' code, as it was raised.
#![forbid(unsafe_code)]

/// All that an error tells but where in PostgreSQL's source it was raised for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Original {
    /// Packed SQLSTATE, whatever it is: users have codes of their own.
    pub code: i32,
    pub message: String,
    pub detail: Option<String>,
    /// DETAIL for the server log, where that is another.
    pub detail_log: Option<String>,
    pub hint: Option<String>,
    /// CONTEXT: one line for each function and command around it, innermost first.
    pub context: Option<String>,
    pub schema: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
    pub datatype: Option<String>,
    pub constraint: Option<String>,
    /// Place in `internal_query`, from 1; 0: none.
    pub internal_position: i32,
    pub internal_query: Option<String>,
    /// Where it was raised, by which it is known again.
    pub file: String,
    pub line: u32,
}

impl Original {
    /// Takes out what tells of a statement of our own: nobody but us can make anything of its text.
    pub fn without_statement(&mut self, sql: &str) {
        if self.internal_query.as_deref() == Some(sql) {
            self.internal_query = None;
            self.internal_position = 0;
        }
        let Some(context) = &self.context else { return };
        let Some(found) = context.find(sql) else { return };
        let before = context[..found].rfind('\n');
        let after = context[found + sql.len()..].find('\n').map(|end| found + sql.len() + end + 1);
        let kept = match (before, after) {
            (Some(before), Some(after)) => format!("{}\n{}", &context[..before], &context[after..]),
            (Some(before), None) => context[..before].to_string(),
            (None, Some(after)) => context[after..].to_string(),
            (None, None) => String::new(),
        };
        self.context = Some(kept).filter(|kept| !kept.is_empty());
    }

    /// The lines of CONTEXT nearest to where it was raised, as one.
    pub fn place(&self) -> Option<String> {
        let lines = self.context.as_deref()?.lines().take(3);
        Some(lines.collect::<Vec<_>>().join("; "))
    }
}

/// The five characters of a packed SQLSTATE.
pub fn sqlstate(code: i32) -> String {
    // As MAKE_SQLSTATE packs them: six bits a character, the first one lowest.
    (0..5).map(|i| char::from((((code >> (6 * i)) & 0x3f) as u8) + b'0')).collect()
}
