import { useVolumeByName } from '../api/live';
import type { Finding } from '../api/types';
import { withClaim } from '../lib/names';
import type { Tone } from '../lib/tone';
import { Badge } from './Badge';
import { Command } from './Command';
import { ObjectLink } from './ObjectLink';

const tones: Record<Finding['severity'], Tone> = { error: 'bad', warning: 'warn', info: 'busy' };

// shownAtOnce is the number of findings that show all reasons and next steps at once. The others show only the first
// reason until the user opens them.
const shownAtOnce = 1;

// Findings shows the problems, the worst first, each with its reasons and the next steps.
export function Findings({ list, hideObject }: { list: Finding[]; hideObject?: boolean }) {
  const volumeByName = useVolumeByName();
  return (
    <ul className="findings">
      {list.map((f, i) => (
        <li key={`${f.id}/${i}`} className={`finding ${f.severity}`}>
          <details open={i < shownAtOnce}>
            <summary>
              <Badge tone={tones[f.severity]}>{f.severity}</Badge>
              <span className="what">
                {withClaim(f.what, volumeByName(f.object.volume))}
                {f.why?.[0] !== undefined && <span className="small reason">{f.why[0]}</span>}
              </span>
            </summary>
            {!hideObject && (
              <p className="small">
                About <ObjectLink object={f.object} volume={volumeByName(f.object.volume)} /> · {f.reason}
              </p>
            )}
            {f.why !== null && f.why.length > 0 && (
              <>
                <h3>Why</h3>
                <ul>
                  {f.why.map((line) => (
                    <li key={line}>{line}</li>
                  ))}
                </ul>
              </>
            )}
            {f.next !== null && f.next.length > 0 && (
              <>
                <h3>Next</h3>
                <ol>
                  {f.next.map((step) => (
                    <li key={step.text + (step.command ?? '')}>
                      {step.text}
                      {step.command !== undefined && step.command !== '' && <Command text={step.command} />}
                    </li>
                  ))}
                </ol>
              </>
            )}
          </details>
        </li>
      ))}
    </ul>
  );
}
