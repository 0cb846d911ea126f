export function Loading({ what }: { what: string }) {
  return (
    <p className="loading" role="status">
      Reading {what} …
    </p>
  );
}
