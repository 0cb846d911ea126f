// tagsOf parses tags that are separated by commas or spaces, and removes duplicates.
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter((t) => t !== ''))];
}

// tagText formats tags so that tagsOf returns the same tags.
export function tagText(tags: readonly string[] | null | undefined): string {
  return (tags ?? []).join(', ');
}
