//! The word that was probably meant: for misspelt keys, kinds and the like.

/// The one of `words` that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = words.into_iter().map(|known| (strsim::levenshtein(word, known), known)).min()?;
    (near.0 <= 1 + word.len() / 4).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_another_word_is_not() {
        let words = ["request", "limit", "memory"];
        assert_eq!(nearest("reqest", words), Some("request"));
        assert_eq!(nearest("colour", words), None);
    }
}
