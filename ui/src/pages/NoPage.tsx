import { Link } from 'wouter';

// NoPage is shown for an address that the page does not know.
export function NoPage({ place }: { place: string }) {
  return (
    <>
      <h1>This page does not exist</h1>
      <p className="address">
        There is no page at the address {place}. <Link href="/">Go to the dashboard</Link>
      </p>
    </>
  );
}
