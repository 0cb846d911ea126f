// tagsOf reads tags that are separated by commas or spaces; each counts once.
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter((t) => t !== ''))];
}

// tagText writes tags as tagsOf reads them.
export function tagText(tags: readonly string[] | null | undefined): string {
  return (tags ?? []).join(', ');
}
