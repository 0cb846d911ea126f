import { Meter as AriaMeter, ProgressBar } from 'react-aria-components';
import { percent } from '../lib/format';

interface Part {
  name: string;
  value: number;
  className: string;
}

// StackedMeter shows the parts of a whole in one bar, with the same information as text.
export function StackedMeter({ label, text, whole, parts }: { label: string; text: string; whole: number; parts: Part[] }) {
  const sum = parts.reduce((total, p) => total + p.value, 0);
  return (
    <AriaMeter className="meter" aria-label={label} value={sum} minValue={0} maxValue={Math.max(whole, sum, 1)} valueLabel={text}>
      <div className="bar">
        {parts.map((p) => (
          <div key={p.name} className={`part ${p.className}`} style={{ width: `${(100 * p.value) / Math.max(whole, sum, 1)}%` }} title={p.name} />
        ))}
      </div>
    </AriaMeter>
  );
}

// Progress shows the progress of an operation, in percent. Without a value, it shows that the operation runs.
export function Progress({ label, value, text }: { label: string; value?: number; text?: string }) {
  const isKnown = value !== undefined;
  return (
    <ProgressBar className="progress" aria-label={label} isIndeterminate={!isKnown} {...(isKnown ? { value } : {})} {...(text === undefined ? {} : { valueLabel: text })}>
      <div className="bar">
        <div className={`part busy${isKnown ? '' : ' unknown'}`} style={{ width: isKnown ? `${value}%` : '35%' }} />
      </div>
      <span className="small">{text ?? percent(value ?? 0, 100)}</span>
    </ProgressBar>
  );
}
