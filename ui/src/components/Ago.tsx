import { useEffect, useState } from 'react';
import { ago, dateTime } from '../lib/format';

// period is the time between two updates of the text, in milliseconds.
const period = 10_000;

// Ago shows how long ago something happened. The time itself is shown when the user points at the text.
export function Ago({ date }: { date: Date }) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), period);
    return () => clearInterval(timer);
  }, []);
  return (
    <time dateTime={date.toISOString()} title={dateTime(date)}>
      {ago(date, new Date(now))}
    </time>
  );
}
