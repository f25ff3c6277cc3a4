//! The word that was probably meant: for misspelt keys, policies and the like.

/// The one of `words` that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = words.into_iter().map(|known| (distance(word, known), known)).min()?;
    (near.0 <= 1 + word.len() / 4).then_some(near.1)
}

/// Insertions, deletions and replacements that make `b` of `a` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_another_word_is_not() {
        let words = ["policy", "tick_us", "mode"];
        assert_eq!(nearest("polcy", words), Some("policy"));
        assert_eq!(nearest("colour", words), None);
    }
}
