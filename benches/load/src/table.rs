//! Tables in Markdown on standard output, to be pasted into `docs/performance.md`. Owns how numbers are
//! written.

pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |at: usize| {
            self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = widths
                .iter()
                .enumerate()
                .map(|(at, &width)| {
                    let cell = row.get(at).map_or("", String::as_str);
                    if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                })
                .collect();
            println!("| {} |", cells.join(" | "));
            if number == 0 {
                let rule = |at: usize| if at == 0 { "---" } else { "---:" };
                println!("| {} |", (0..columns).map(rule).collect::<Vec<_>>().join(" | "));
            }
        }
        println!();
    }
}

/// A heading of a table.
pub fn heading(text: &str) {
    println!("### {text}\n");
}

/// A sentence above a table.
pub fn note(text: &str) {
    println!("{text}\n");
}

/// What goes on, for who waits.
pub fn progress(text: &str) {
    eprintln!("{text}");
}

pub fn times(ratio: f64) -> String {
    let places = if ratio < 10.0 { 2 } else { 1 };
    number(ratio, places)
}

pub fn number(value: f64, places: usize) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.places$}") }
}

/// 10000 as 10,000.
pub fn counted(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(counted(1_000_000), "1,000,000");
        assert_eq!(counted(999), "999");
        assert_eq!(times(12.345), "12.3");
        assert_eq!(number(f64::NAN, 1), "-");
    }
}
