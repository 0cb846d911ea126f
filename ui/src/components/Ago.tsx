import { useEffect, useState } from 'react';
import { ago, dateTime } from '../lib/format';

// period is how often the text is brought up to date, in milliseconds.
const period = 10_000;

// Ago is how long ago something happened. Pointing at it shows the time itself.
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
