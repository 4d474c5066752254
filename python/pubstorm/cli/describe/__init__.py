"""The words of `pubstorm check`, as lines of text: plan, series, needs."""
